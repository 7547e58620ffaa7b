"""Tasks: an `nn.Module` that owns what a method needs (teacher, mix block) and turns a batch into a loss.

`MixTask` serves methods that mix images, `HiddenTask` those that mix feature maps; AutoMix brings its own. task.py has
the step that all share, student_teacher.py the networks, loop_checks.py the warnings about training loops.
"""

from automix.tasks.early_backward import backward_early
from automix.tasks.hidden_task import HiddenTask
from automix.tasks.mix_task import MixTask
from automix.tasks.step_output import StepOutput
from automix.tasks.student_teacher import StudentTeacher
from automix.tasks.task import Task
from automix.tasks.teacher_objects import TeacherObjects

__all__ = ["HiddenTask", "MixTask", "StepOutput", "StudentTeacher", "Task", "TeacherObjects", "backward_early"]
