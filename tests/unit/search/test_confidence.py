from app.ai_providers.contract import EmbeddingModel
from app.search.service import confidence


def model(calibration: float | None) -> EmbeddingModel:
    return EmbeddingModel("m", 4, 512, 64, 1000, calibration=calibration)


def test_unrelated_texts_have_no_confidence_and_identical_ones_have_all() -> None:
    assert confidence((1 + 0.82) / 2, model(0.82)) == 0
    assert confidence(1.0, model(0.82)) == 1
    assert confidence(0.0, model(0.82)) == 0


def test_a_model_without_calibration_has_none() -> None:
    assert confidence(0.9, model(None)) is None
    assert confidence(0.9, None) is None
