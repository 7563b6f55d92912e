"""Parameters that several commands take, by subject.

Nothing here loads the compiler: `--help` and a shell's completion read it.
"""

from mtool.cli.parameters.device import (
    HOST,
    BoardName,
    BoardOrProjects,
    DryRun,
    FlashCommand,
    OnDevice,
    Port,
    PowerCommand,
    Probe,
    boards,
)
from mtool.cli.parameters.farm import Scheduler, TlsCa, TlsCertificate, TlsKey
from mtool.cli.parameters.groups import (
    Asked,
    FirmwareOptions,
    FitOptions,
    FlashDeployment,
    GivenOptions,
    ModelOptions,
    ModuleOptions,
    PartitionOptions,
    ProjectDeployment,
    ProjectOptions,
    ShapeOptions,
    SourceOptions,
    TrialsDeployment,
    TuningOptions,
)
from mtool.cli.parameters.inputs import Fill, SampleCount, Seed, output_file, repeat
from mtool.cli.parameters.model import SEVERAL, ModelFile, ModelFiles, ModelOrProject
from mtool.cli.parameters.project import BuiltDir, Force, Keep, ListOptions, OutputDir, SourceDir, output_dir

__all__ = [
    "HOST",
    "SEVERAL",
    "Asked",
    "BoardName",
    "BoardOrProjects",
    "BuiltDir",
    "DryRun",
    "Fill",
    "FirmwareOptions",
    "FitOptions",
    "FlashCommand",
    "FlashDeployment",
    "Force",
    "GivenOptions",
    "Keep",
    "ListOptions",
    "ModelFile",
    "ModelFiles",
    "ModelOptions",
    "ModelOrProject",
    "ModuleOptions",
    "OnDevice",
    "OutputDir",
    "PartitionOptions",
    "Port",
    "PowerCommand",
    "Probe",
    "ProjectDeployment",
    "ProjectOptions",
    "SampleCount",
    "Scheduler",
    "Seed",
    "ShapeOptions",
    "SourceDir",
    "SourceOptions",
    "TlsCa",
    "TlsCertificate",
    "TlsKey",
    "TrialsDeployment",
    "TuningOptions",
    "boards",
    "output_dir",
    "output_file",
    "repeat",
]
