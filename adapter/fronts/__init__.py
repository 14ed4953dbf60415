"""The HTTP fronts: SageMaker's multi-model contract, V2 REST, LMI and TGI. Imported only where one is switched on."""
