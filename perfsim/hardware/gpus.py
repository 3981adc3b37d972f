"""The GPUs that a scenario names, as the files of devices and profiles describe them."""

from __future__ import annotations

from perfsim.compute.device import Device, load_device
from perfsim.compute.profile import Profile, own_profile, read_profile
from perfsim.compute.transfer import device_of_profile
from perfsim.data.catalog import Catalog
from perfsim.models import model_flops
from perfsim.session import RememberingDevice

__all__ = ["device_in_era"]


def device_in_era(name: str, software: str, catalog: Catalog, model: str = "") -> Device:
    """Return a GPU with the kernels of a software era, which remembers what they cost.

    ``model`` is the scenario's: the file of a profile may alone show its GPU.
    """
    own = None if name in catalog.files("devices") else own_profile(model, catalog)
    own = own if own is not None and own.gpu == name else None
    return catalog.once(
        ("device with costs", name, software, own and own.path),
        lambda: RememberingDevice.like(_loaded(name, software, catalog, own)),
    )


def _loaded(name: str, software: str, catalog: Catalog, own: Profile | None) -> Device:
    """Return a GPU of its file, or one that a profile alone shows (``cpu``, or one unheard of)."""
    files = catalog.files("models")
    shown = [stem for stem in files if (*stem.split("."), "")[1] == name]
    if own is None and (name in catalog.files("devices") or not shown):
        return load_device(name, catalog, software)
    profile = own or read_profile(files[shown[0]])
    work = model_flops(profile.model, profile.sequence).get("products")
    return device_of_profile(profile, work, software)
