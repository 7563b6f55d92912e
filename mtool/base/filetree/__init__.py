"""Sets of files as pure data, and the folders that they are written to."""

from mtool.base.filetree.record import FOLDER as FOLDER
from mtool.base.filetree.record import interrupted as interrupted
from mtool.base.filetree.tree import IGNORED as IGNORED
from mtool.base.filetree.tree import SECRETS as SECRETS
from mtool.base.filetree.tree import FileTree as FileTree
from mtool.base.filetree.tree import digest_of as digest_of
from mtool.base.filetree.tree import from_folder as from_folder
from mtool.base.filetree.tree import is_plain as is_plain
from mtool.base.filetree.writing import Edits as Edits
from mtool.base.filetree.writing import check_folder as check_folder
from mtool.base.filetree.writing import log_left as log_left
from mtool.base.filetree.writing import write as write
from mtool.base.filetree.writing import written_once as written_once
