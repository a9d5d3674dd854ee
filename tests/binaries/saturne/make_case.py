# The case of a cavity whose lid moves, as setup.xml, by the modules of Code_Saturne's own interface.
import sys

sys.path[:0] = ["/usr/lib/python3/dist-packages", "/usr/lib/python3/dist-packages/code_saturne"]
from code_saturne.cs_package import package  # noqa: E402
from code_saturne.model.Boundary import Boundary  # noqa: E402
from code_saturne.model.FluidCharacteristicsModel import FluidCharacteristicsModel  # noqa: E402
from code_saturne.model.LocalizationModel import LocalizationModel, Zone  # noqa: E402
from code_saturne.model.TimeStepModel import TimeStepModel  # noqa: E402
from code_saturne.model.TurbulenceModel import TurbulenceModel  # noqa: E402
from code_saturne.model.XMLengine import Case  # noqa: E402
from code_saturne.model.XMLinitialize import XMLinit  # noqa: E402

case = Case(package=package())
case["xmlfile"] = "setup.xml"
case.xmlCleanAllBlank(case.xmlRootNode())
XMLinit(case).initialize()
TurbulenceModel(case).setTurbulenceModel("off")
fluid = FluidCharacteristicsModel(case)
fluid.setInitialValueDensity(1.0)
fluid.setInitialValueViscosity(0.01)
zones = LocalizationModel("BoundaryZone", case)
for group, label, nature in ("1", "lid", "wall"), ("2", "walls", "wall"), ("3", "sides", "symmetry"):
    zones.addZone(Zone("BoundaryZone", case=case, label=label, localization=group, nature=nature))
    Boundary(nature, label, case)
lid = Boundary("wall", "lid", case)
lid.setVelocityChoice("on")
lid.setVelocities(1.0, 0.0, 0.0)
time = TimeStepModel(case)
time.setTimeStep(0.02)
time.setStopCriterion("iterations", 10)
case.xmlSaveDocument()
