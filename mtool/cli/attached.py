"""`mtool boards --attached`: what is plugged in, and which boards that may be."""

from mtool import boards
from mtool.cli.output import Output, table
from mtool.device.flash import ports
from mtool.device.flash.ports import Attached

_NOTHING = "no board is attached"


def show(out: Output) -> None:
    """List the devices with a serial port, and the probes of known boards that have none."""
    shown = [device for device in ports.attached() if device.port or candidates(device)]
    out.result({"attached": [described(device) for device in shown]})
    if not shown:
        out.text(_NOTHING)
        return
    rows = [
        [", ".join([device.port, *device.more_ports]), device.description, device.probe, device.usb_id, _named(device)]
        for device in shown
    ]
    out.text(table(("port", "device", "serial number", "usb", "board"), rows))


def follow(out: Output, *, times: int | None = None) -> None:
    """Write a line for each device that is attached, plugged in (+) or unplugged (-), until Ctrl-C.

    Args:
        out: the output to write to.
        times: the number of polls; None: no limit.
    """
    for sign, device in ports.watch(times=times):
        out.text(f"{sign} {device}   {_named(device)}".rstrip())


def candidates(device: Attached) -> list[str]:
    """Return the names of the boards that a device may be."""
    return [board.name for board in boards.load_all().values() if board.usb and device.usb_id in board.usb.ids]


def described(device: Attached) -> dict[str, object]:
    """Return a device as plain values, for --json."""
    return {
        "port": device.port or None,
        "more_ports": list(device.more_ports),
        "probe": device.probe or None,
        "usb_id": device.usb_id,
        "description": device.description,
        "boards": candidates(device),
    }


def _named(device: Attached) -> str:
    names = candidates(device)
    return f"{', '.join(names[:3])} or {len(names) - 3} more" if len(names) > 4 else " or ".join(names)
