# The public names, once: type checkers read this file, and sbil/__init__.py takes the names and their modules from it.
# One line per name, as "from MODULE import NAME as NAME".

from sbil.api.compare import compare as compare
from sbil.api.demonstrate import demonstrate as demonstrate
from sbil.api.evaluate import evaluate as evaluate
from sbil.api.predict import predict as predict
from sbil.api.report import report as report
from sbil.api.reproduce import reproduce as reproduce
from sbil.api.train import train as train
from sbil.api.verify import verify as verify
from sbil.api.view import view as view
from sbil.api.watch import watch as watch
from sbil.dataset import Dataset as Dataset
from sbil.dataset import Spec as Spec
from sbil.dataset import make_dataset as make_dataset
from sbil.dataset import spec_of as spec_of
from sbil.demonstrations import Demonstrations as Demonstrations
from sbil.demonstrations import Trajectory as Trajectory
from sbil.demonstrations import check as check
from sbil.demonstrations import read as read
from sbil.demonstrations import save as save
from sbil.demonstrations.formats.minari import write_minari as write_minari
from sbil.demonstrators.sb3 import import_agent as import_agent
from sbil.errors import UserError as UserError
from sbil.evaluation import Policies as Policies
from sbil.evaluation import play as play
from sbil.fitting import fit as fit
from sbil.policy import Policy as Policy
from sbil.training import train_many as train_many
from sbil.training import train_one as train_one
from sbil.version import __version__ as __version__
