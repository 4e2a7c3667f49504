"""The contract suite of vector stores, for any plugin author to run with pytest, pytest-asyncio and hypothesis:

    from app.vector_stores.contract import VectorStore
    from app.vector_stores.testing import VectorStoreContract
    from our_package import OurSettings, OurStore

    class TestOurStore(VectorStoreContract):
        async def build_store(self) -> VectorStore:
            return OurStore(OurSettings(url="http://localhost:1234"))

Every promise of the contract is one test, its name a sentence. Works are fresh ids in every test, so a backend that
keeps its data between tests is welcome. What a store can't show (data that outlives it, a server that can be away)
is a hook left alone, and its test skips with the reason.
"""

import pytest

for _room in ("base", "isolation", "life", "machine", "manners", "outage", "restrictions", "searching", "vectors"):
    pytest.register_assert_rewrite(f"{__name__}.{_room}")

from app.vector_stores.testing.base import ContractBase  # noqa: E402
from app.vector_stores.testing.isolation import IsolationContract  # noqa: E402
from app.vector_stores.testing.life import LifeContract  # noqa: E402
from app.vector_stores.testing.machine import LifeAtRandomContract  # noqa: E402
from app.vector_stores.testing.manners import MannersContract  # noqa: E402
from app.vector_stores.testing.outage import Interruptible, OutageContract, Relay  # noqa: E402
from app.vector_stores.testing.restrictions import RestrictionContract  # noqa: E402
from app.vector_stores.testing.searching import SearchContract  # noqa: E402
from app.vector_stores.testing.vectors import VectorContract  # noqa: E402

__all__ = ["ContractBase", "Interruptible", "Relay", "VectorStoreContract"]


class VectorStoreContract(
    IsolationContract,
    LifeContract,
    LifeAtRandomContract,
    RestrictionContract,
    SearchContract,
    VectorContract,
    MannersContract,
    OutageContract,
):
    """All promises. Derive from it and give it `build_store`."""
