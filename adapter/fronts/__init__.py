"""The HTTP fronts: SageMaker's multi-model contract and V2 REST. Imported only where one is switched on."""
