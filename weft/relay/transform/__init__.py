"""Passes of Relay.

The language: ``scopes``, ``to_a_normal_form``, ``lambda_lift``.
"""

from weft.relay.transform.infer_type import infer_type
from weft.relay.transform.lambda_lift import lambda_lift
from weft.relay.transform.to_a_normal_form import to_a_normal_form

ToANormalForm = to_a_normal_form
LambdaLift = lambda_lift
InferType = infer_type
