"""What the processes share: engine, clients, plugins, and the answerers behind the rooms' protocols."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, SecretStr
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.ai_providers.local import LocalProvider, LocalSettings
from app.chunking.contract import ChunkSettings
from app.chunking.settings import validate_settings
from app.db.engine import APP_ROLE, Database, DatabaseUnavailable, driver_url, make_engine
from app.db.migrating import migrate, schema_state, wait_for_database
from app.db.reading import ReadPool
from app.documents import idempotency
from app.documents.repository import StatusCounter
from app.errors import Invalid, Misconfigured
from app.identity.contract import Access
from app.indexing.changing import Changer
from app.indexing.choices import EnvironmentChoice
from app.indexing.choosing import Chooser
from app.indexing.commanding import GenerationCommands
from app.indexing.generations import Generations
from app.indexing.pinning import Pinning
from app.indexing.reconciling import Reconciler, environment_fingerprint
from app.indexing.routing import Routing
from app.indexing.tenant_settings import Defaults, TenantSettings
from app.jobs.running import reclaim_all
from app.knowledge_bases.contract import DocumentCounter
from app.logs import get_logger
from app.plugins.embedding_choice import EmbeddingWish
from app.plugins.endpoints import EndpointGuard
from app.plugins.instances import LOOK_AGAIN_S, Instances
from app.plugins.registry import Plugin, Registry
from app.plugins.sealing import Sealer
from app.plugins.selection import Candidate, check_at_start
from app.settings import Settings
from app.storage.blobs import open_blob_store
from app.storage.contract import BlobStore
from app.tenancy.authenticating import KeyAuthenticator, WorkAccess
from app.tenancy.bootstrap import bootstrap
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from app.vector_stores.pgvector import PgvectorStore
from app.vector_stores.pgvector.settings import PgvectorSettings

log = get_logger()
SECRET_KEY_FILE = "secret-key"  # noqa: S105 - a file name
Role = Literal["api", "worker"]


@dataclass
class Assembly:
    """The parts of one process."""

    settings: Settings
    database: Database
    reads: ReadPool
    storage: BlobStore
    registry: Registry
    instances: Instances
    routing: Routing
    chooser: Chooser
    generations: Generations
    reconciler: Reconciler
    generation_commands: GenerationCommands
    pinning: Pinning
    tenant_settings: TenantSettings
    authenticator: KeyAuthenticator
    access: Access
    document_counter: DocumentCounter


@asynccontextmanager
async def open_assembly(settings: Settings, *, role: Role) -> AsyncIterator[Assembly]:
    """Build everything, without waiting for anything outside; close it at the end.

    Raises: Misconfigured when the settings can't work: a pin to an unknown plugin, no selectable store, bad keys.
    """
    assembly = _assemble(settings, role)
    try:
        yield assembly
    finally:
        await assembly.authenticator.close()
        await assembly.instances.close()
        await assembly.storage.close()
        await assembly.reads.close()
        await assembly.database.close()


def check_settings(settings: Settings) -> None:
    """Refuse settings that can't work before anything starts.

    Raises: Misconfigured, UnusablePin, InvalidPluginSettings.
    """
    registry = Registry.discover()
    _check_start(registry, environment_choice(settings, registry))
    Sealer(secret_keys(settings))
    _chunk_settings(settings)


def _chunk_settings(settings: Settings) -> ChunkSettings:
    try:
        return validate_settings(settings.chunk_size_tokens, settings.chunk_overlap_tokens)
    except Invalid as error:
        named = "; ".join(f"KB_{str(fault.loc[-1]).upper()} {fault.msg}" for fault in error.faults)
        raise Misconfigured(f"{named}.") from None


def _assemble(settings: Settings, role: Role) -> Assembly:
    dsn = database_url(settings)
    prepares = settings.database_direct_url is None  # set = the other URL leads through a pooler
    engine = make_engine(
        dsn,
        pool_size=settings.database_pool_size,
        max_overflow=settings.database_max_overflow,
        pool_timeout_s=settings.database_pool_timeout_s,
        application_name=f"stackroom {role}",
        prepares=prepares,
    )
    database = Database(engine, statement_timeout_s=settings.database_statement_timeout_s)
    reads = ReadPool(
        dsn,
        database,
        max_size=settings.database_pool_size,
        wait_s=settings.database_pool_timeout_s,
        timeout_s=settings.search_timeout_s,
        prepares=prepares,
    )
    registry = Registry.discover()
    environment = environment_choice(settings, registry)
    _check_start(registry, environment)
    sealer = Sealer(secret_keys(settings))

    def build(plugin: Plugin, values: BaseModel) -> Any:
        return _build(plugin, values, settings, database)

    guard = None if settings.allow_private_endpoints else EndpointGuard()
    # A document fails for good with a key that has just been replaced; a search only answers by words for a moment.
    look_again_s = 0.0 if role == "worker" else LOOK_AGAIN_S
    instances = Instances(database, registry, sealer, environment.settings, build, guard, look_again_s)
    chooser = Chooser(database, registry, sealer, instances, environment)
    chunks = _chunk_settings(settings)
    changer = Changer(database, registry, sealer, instances)
    pinning = Pinning(changer, registry, sealer, instances, chooser)
    reconciler = Reconciler(database, chooser, environment_fingerprint(environment, registry))
    return Assembly(
        settings=settings,
        database=database,
        reads=reads,
        storage=open_blob_store(settings.storage_location),
        registry=registry,
        instances=instances,
        routing=Routing(instances.open, instances.open),
        chooser=chooser,
        generations=Generations(database, chooser, chunks),
        reconciler=reconciler,
        generation_commands=GenerationCommands(database, changer, chooser, reconciler),
        pinning=pinning,
        tenant_settings=TenantSettings(changer, chooser, pinning, Defaults(chunks, settings.max_results)),
        authenticator=KeyAuthenticator(database, reads),
        access=WorkAccess(),
        document_counter=StatusCounter(),
    )


def _build(plugin: Plugin, values: BaseModel, settings: Settings, database: Database) -> Any:
    """A plugin with settings. Those that live in our own places are told where those are."""
    if plugin.cls is PgvectorStore and isinstance(values, PgvectorSettings):
        role = None if database.second_wall is False else APP_ROLE
        return PgvectorStore(
            values, own_dsn=driver_url(database_url(settings)), direct_dsn=driver_url(direct_url(settings)), role=role
        )
    if plugin.cls is LanceDbStore and isinstance(values, LanceDbSettings):
        return LanceDbStore(values, own_path=settings.data_dir.absolute() / "lancedb")
    if plugin.cls is LocalProvider and isinstance(values, LocalSettings) and values.model_dir is None:
        return LocalProvider(values.model_copy(update={"model_dir": settings.model_location}))
    return plugin.cls(values)


def environment_choice(settings: Settings, registry: Registry) -> EnvironmentChoice:
    """What the environment says of plugins. Raises: InvalidPluginSettings."""
    return EnvironmentChoice(
        store_pin=settings.vector_store_provider_id,
        store_default=settings.vector_store_default_id,
        provider_pin=settings.embedding_provider_id,
        provider_default=settings.embedding_default_id,
        wish=EmbeddingWish(settings.embedding_mode, settings.embedding_model, settings.embedding_dimensions),
        disabled=frozenset(settings.disabled_plugins),
        settings=_environment_settings(settings, registry, os.environ),
    )


def _environment_settings(
    settings: Settings, registry: Registry, environment: Mapping[str, str]
) -> dict[str, BaseModel]:
    """Settings of the plugins that the environment configures: `KB_PLUGIN_<ID>__<FIELD>`, and those that need none."""
    found: dict[str, BaseModel] = {}
    for plugin in registry.plugins():
        plugin_id = plugin.manifest.id
        prefix = f"KB_PLUGIN_{plugin_id.upper().replace('-', '_')}__"
        values: dict[str, Any] = {
            name.removeprefix(prefix).lower(): value for name, value in environment.items() if name.startswith(prefix)
        }
        if plugin_id == "openai":
            values = {**_openai_values(settings), **values}
        if plugin_id == "local" and settings.embedding_threads:
            values.setdefault("threads", settings.embedding_threads)
        if values or plugin.manifest.system_plugin or plugin_id == "memory":
            found[plugin_id] = registry.parse_settings(plugin_id, values)
    return found


def _openai_values(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if settings.openai_api_key is not None:
        values["api_key"] = settings.openai_api_key
    if settings.openai_base_url is not None:
        values["base_url"] = settings.openai_base_url
    if values and settings.embedding_model is not None:
        values["model"] = settings.embedding_model
    if values and settings.embedding_dimensions is not None:
        values["dimensions"] = settings.embedding_dimensions
    return values


def _check_start(registry: Registry, environment: EnvironmentChoice) -> None:
    candidates = [Candidate(p.manifest, p.manifest.id not in environment.disabled) for p in registry.plugins()]
    broken = registry.broken_reasons()
    for plugin_id, reason in broken.items():
        log.warning("plugin.broken", plugin_id=plugin_id, reason=reason)
    warnings = check_at_start(
        "vector-store",
        candidates=candidates,
        operator_pin=environment.store_pin,
        soft_default=environment.store_default,
        broken=broken,
    )
    warnings += check_at_start(
        "ai-provider",
        candidates=candidates,
        operator_pin=environment.provider_pin,
        soft_default=environment.provider_default,
        broken=broken,
    )
    for warning in warnings:
        log.warning("plugin.default_passed_over", reason=warning)


def database_url(settings: Settings) -> str:
    """The database's URL. Raises: ValueError when there is none: the commands check first."""
    if settings.database_url is None:
        raise ValueError("KB_DATABASE_URL is not set")
    return settings.database_url.get_secret_value()


def direct_url(settings: Settings) -> str:
    """The same database past a pooler."""
    if settings.database_direct_url is not None:
        return settings.database_direct_url.get_secret_value()
    return database_url(settings)


def secret_keys(settings: Settings) -> list[str]:
    """The sealing keys; without any, one is made once in the data directory."""
    if settings.secret_keys:
        return [key.get_secret_value() for key in settings.secret_keys]
    path = settings.data_dir / SECRET_KEY_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().split()
    with os.fdopen(descriptor, "w") as file:
        file.write(Sealer.generate_key() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path.read_text().split()


async def readiness(assembly: Assembly) -> tuple[list[str], list[str]]:
    """(reasons why requests will not be served, notes)."""
    notes = [f"plugin '{name}' is broken" for name in assembly.registry.broken_reasons()]
    try:
        async with assembly.database.owner_connection() as connection:
            state = await connection.run_sync(schema_state)
        if not state.is_current:
            return [state.sentence], notes
        if not await assembly.database.has_second_wall():
            notes.insert(0, "row-level security is off: the role cannot be taken")
        async with assembly.database.unscoped():
            pass
    except DatabaseUnavailable as error:
        return [error.message], notes
    except (DBAPIError, OSError) as error:
        log.error("readiness.failed", error=type(error).__name__)
        return ["The database refuses transactions of this service; its log says why."], notes
    return [], notes


async def prepare_database(settings: Settings, dsn: str, *, alone: bool) -> None:
    """Migrate, make the first key, and, when nobody else uses the database, take back what an earlier run left."""
    migrate(dsn)
    engine = make_engine(dsn, pool_size=1, application_name="stackroom prepare", begins=True)
    key: SecretStr | None = settings.bootstrap_api_key
    try:
        await bootstrap(
            engine,
            data_dir=settings.data_dir,
            bootstrap_key=None if key is None else key.get_secret_value(),
        )
        if alone:
            await idempotency.release_all(engine)
    finally:
        await engine.dispose()
    if alone:
        await reclaim_all(dsn)


async def migrate_and_bootstrap(settings: Settings) -> None:
    """The use case of `stackroom migrate`."""
    dsn = direct_url(settings)
    wait_for_database(dsn, settings.database_wait_s)
    await prepare_database(settings, dsn, alone=False)


async def rotate_sealed_settings(settings: Settings) -> None:
    """Seal every stored plugin setting anew with the first key. Runs as the tables' owner, past row-level security."""
    sealer = Sealer(secret_keys(settings))
    engine = make_engine(direct_url(settings), pool_size=1, application_name="stackroom rotate-keys", begins=True)
    try:
        async with engine.begin() as connection:
            for table, keys in _SEALED_TABLES.items():
                columns = ", ".join(keys)
                rows = await connection.execute(
                    text(f"select {columns}, sealed_settings from {table} where sealed_settings is not null")  # noqa: S608
                )
                for row in rows.mappings().all():
                    if sealer.is_current(row["sealed_settings"]):
                        continue
                    where = " and ".join(f"{key} = :{key}" for key in keys)
                    await connection.execute(
                        text(f"update {table} set sealed_settings = :sealed where {where}"),  # noqa: S608
                        {**{key: row[key] for key in keys}, "sealed": sealer.rotate(row["sealed_settings"])},
                    )
    finally:
        await engine.dispose()


_SEALED_TABLES: Mapping[str, tuple[str, ...]] = {
    "plugin_instances": ("id",),
    "work_plugins": ("work_id", "plugin_id"),
    "organization_plugins": ("organization_id", "plugin_id"),
}
