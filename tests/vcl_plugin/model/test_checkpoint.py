"""Weights files: ours and the authors', whole, damaged, foreign and missing."""

import json
import pickle

import pytest
import torch
from golden_weights import golden_state_dict
from safetensors.torch import save_file

from retrieval.errors import MissingWeights
from vcl_plugin.model import (
    SMALL,
    TransVCL,
    fingerprint_weights,
    load_transvcl,
    read_facts,
    save_transvcl,
)


def test_our_file_comes_back_with_config_facts_and_fingerprint(tmp_path, small_model):
    path = tmp_path / "ours.safetensors"
    fingerprint = save_transvcl(small_model, path, {"hours": 2.5})
    loaded = load_transvcl(path)
    assert loaded.config == SMALL
    assert fingerprint == fingerprint_weights(loaded) == fingerprint_weights(small_model)
    assert read_facts(path) == {"hours": 2.5}
    assert not loaded.training
    assert list(tmp_path.iterdir()) == [path]


def test_half_matrices_halve_the_file_and_are_what_the_fingerprint_covers(tmp_path, small_model):
    whole, half = tmp_path / "whole.safetensors", tmp_path / "half.safetensors"
    save_transvcl(small_model, whole)
    fingerprint = save_transvcl(small_model, half, has_half_matrices=True)
    assert half.stat().st_size < 0.55 * whole.stat().st_size
    loaded = load_transvcl(half)
    assert fingerprint == fingerprint_weights(loaded) != fingerprint_weights(small_model)
    for name, value in small_model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=1e-3, atol=1e-6)


def test_the_shipped_preset_fits_into_25_megabytes(tmp_path, small_model):
    save_transvcl(small_model, tmp_path / "ours.safetensors")
    assert (tmp_path / "ours.safetensors").stat().st_size < 25e6


def test_the_authors_file_loads_strictly(tmp_path):
    path = tmp_path / "model_1.pth"
    entries = golden_state_dict()
    torch.save({"model": entries, "epoch": 3}, path)
    model = load_transvcl(path)
    assert torch.equal(model.mlp_head[3].weight, entries["mlp_head.3.weight"])
    assert read_facts(path) == {}


def test_the_first_missing_entry_is_named(tmp_path):
    entries = golden_state_dict()
    del entries["backbone.C3_p4.conv1.conv.weight"], entries["head.stems.0.conv.weight"]
    torch.save({"model": entries}, tmp_path / "model.pth")
    with pytest.raises(MissingWeights, match=r"lacks backbone\.C3_p4\.conv1\.conv\.weight"):
        load_transvcl(tmp_path / "model.pth")


def test_a_misshapen_entry_is_named_with_both_shapes(tmp_path):
    entries = golden_state_dict()
    entries["mlp_head.0.weight"] = torch.zeros(256, 1024)
    torch.save({"model": entries}, tmp_path / "model.pth")
    with pytest.raises(MissingWeights, match=r"\(256, 1024\) instead of \(256, 512\)"):
        load_transvcl(tmp_path / "model.pth")


def test_an_unknown_entry_is_named(tmp_path):
    torch.save({"model": golden_state_dict() | {"extra": torch.zeros(1)}}, tmp_path / "model.pth")
    with pytest.raises(MissingWeights, match="holds extra"):
        load_transvcl(tmp_path / "model.pth")


def test_a_value_that_is_not_finite_is_named(tmp_path):
    entries = golden_state_dict()
    entries["mlp_head.3.bias"] = torch.tensor([float("nan")])
    torch.save({"model": entries}, tmp_path / "model.pth")
    with pytest.raises(MissingWeights, match=r"mlp_head\.3\.bias that is not finite"):
        load_transvcl(tmp_path / "model.pth")


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("the checkpoint ran code",))


def test_code_in_a_checkpoint_is_never_run(tmp_path):
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"model": Trap()}, protocol=2))
    torch.save({"model": Trap()}, tmp_path / "evil2.pth")
    for name in ("evil.pth", "evil2.pth"):
        with pytest.raises(MissingWeights, match="without running its code"):
            load_transvcl(tmp_path / name)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
@pytest.mark.parametrize("content", [b"", b"hello", b"\0" * 4096], ids=["empty", "text", "zeros"])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MissingWeights, match=name):
        load_transvcl(tmp_path / name)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.pth", tmp_path):
        with pytest.raises(MissingWeights, match="no weights file at"):
            load_transvcl(path)


def test_a_checkpoint_without_model_is_refused(tmp_path):
    torch.save({"state": {}}, tmp_path / "other.pth")
    with pytest.raises(MissingWeights, match="no entry 'model'"):
        load_transvcl(tmp_path / "other.pth")


def test_one_flipped_bit_is_noticed(tmp_path, small_model):
    path = tmp_path / "ours.safetensors"
    save_transvcl(small_model, path)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(MissingWeights, match="does not match its own fingerprint"):
        load_transvcl(path)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(MissingWeights, match="format None"):
        load_transvcl(tmp_path / "x.safetensors")


def test_a_config_of_the_future_is_refused_with_its_field(tmp_path):
    config = json.dumps({"colour": 1})
    metadata = {"format": "transvcl-1", "config": config, "fingerprint": ""}
    save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors", metadata)
    with pytest.raises(MissingWeights, match="'colour'"):
        load_transvcl(tmp_path / "x.safetensors")


def test_two_networks_that_differ_in_one_weight_have_two_fingerprints(small_model):
    before = fingerprint_weights(small_model)
    with torch.no_grad():
        next(small_model.parameters()).view(-1)[0] += 1e-3
    assert fingerprint_weights(small_model) != before
    assert fingerprint_weights(TransVCL(SMALL)) != before
