"""
The fields of Triton's model config: of each message, which there are and of which kind.

Owns the table and its reading. A line has a message with its fields (`*` may be repeated, `/x` is a member of
the oneof x), or an enum with its values, numbered from 0. Fields and values of newer Tritons are not in it, and
nobody here may conclude that they do not exist. Pure.

Source: triton-inference-server/common `model_config.proto`, as tritonclient brings it.
"""

from __future__ import annotations

from dataclasses import dataclass

TOP = "ModelConfig"
TABLE = """\
BatchInput: kind:BatchInput.Kind, target_name:string*, data_type:DataType, source_input:string*
BatchOutput: target_name:string*, kind:BatchOutput.Kind, source_input:string*
ModelConfig: name:string, platform:string, backend:string, runtime:string, version_policy:ModelVersionPolicy, max_batch_size:int32,
  input:ModelInput*, output:ModelOutput*, batch_input:BatchInput*, batch_output:BatchOutput*, optimization:ModelOptimizationPolicy,
  dynamic_batching:ModelDynamicBatching/scheduling_choice, sequence_batching:ModelSequenceBatching/scheduling_choice,
  ensemble_scheduling:ModelEnsembling/scheduling_choice, instance_group:ModelInstanceGroup*, default_model_filename:string,
  cc_model_filenames:ModelConfig.CcModelFilenamesEntry*, metric_tags:ModelConfig.MetricTagsEntry*,
  parameters:ModelConfig.ParametersEntry*, model_warmup:ModelWarmup*, model_operations:ModelOperations,
  model_transaction_policy:ModelTransactionPolicy, model_repository_agents:ModelRepositoryAgents, response_cache:ModelResponseCache,
  model_metrics:ModelMetrics
ModelConfig.CcModelFilenamesEntry: key:string, value:string
ModelConfig.MetricTagsEntry: key:string, value:string
ModelConfig.ParametersEntry: key:string, value:ModelParameter
ModelDynamicBatching: preferred_batch_size:int32*, max_queue_delay_microseconds:uint64, preserve_ordering:bool, priority_levels:uint64,
  default_priority_level:uint64, default_queue_policy:ModelQueuePolicy,
  priority_queue_policy:ModelDynamicBatching.PriorityQueuePolicyEntry*
ModelDynamicBatching.PriorityQueuePolicyEntry: key:uint64, value:ModelQueuePolicy
ModelEnsembling: step:ModelEnsembling.Step*, max_inflight_requests:uint32
ModelEnsembling.Step: model_name:string, model_version:int64, input_map:ModelEnsembling.Step.InputMapEntry*,
  output_map:ModelEnsembling.Step.OutputMapEntry*, model_namespace:string
ModelEnsembling.Step.InputMapEntry: key:string, value:string
ModelEnsembling.Step.OutputMapEntry: key:string, value:string
ModelInput: name:string, data_type:DataType, format:ModelInput.Format, dims:int64*, reshape:ModelTensorReshape, is_shape_tensor:bool,
  allow_ragged_batch:bool, optional:bool, is_non_linear_format_io:bool
ModelInstanceGroup: name:string, kind:ModelInstanceGroup.Kind, count:int32, rate_limiter:ModelRateLimiter, gpus:int32*,
  secondary_devices:ModelInstanceGroup.SecondaryDevice*, profile:string*, passive:bool, host_policy:string
ModelInstanceGroup.SecondaryDevice: kind:ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKind, device_id:int64
ModelMetrics: metric_control:ModelMetrics.MetricControl*
ModelMetrics.MetricControl: metric_identifier:ModelMetrics.MetricControl.MetricIdentifier,
  histogram_options:ModelMetrics.MetricControl.HistogramOptions/metric_options
ModelMetrics.MetricControl.HistogramOptions: buckets:double*
ModelMetrics.MetricControl.MetricIdentifier: family:string
ModelOperations: op_library_filename:string*
ModelOptimizationPolicy: graph:ModelOptimizationPolicy.Graph, priority:ModelOptimizationPolicy.ModelPriority,
  cuda:ModelOptimizationPolicy.Cuda, execution_accelerators:ModelOptimizationPolicy.ExecutionAccelerators,
  input_pinned_memory:ModelOptimizationPolicy.PinnedMemoryBuffer, output_pinned_memory:ModelOptimizationPolicy.PinnedMemoryBuffer,
  gather_kernel_buffer_threshold:uint32, eager_batching:bool
ModelOptimizationPolicy.Cuda: graphs:bool, busy_wait_events:bool, graph_spec:ModelOptimizationPolicy.Cuda.GraphSpec*,
  output_copy_stream:bool
ModelOptimizationPolicy.Cuda.GraphSpec: batch_size:int32, input:ModelOptimizationPolicy.Cuda.GraphSpec.InputEntry*,
  graph_lower_bound:ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound
ModelOptimizationPolicy.Cuda.GraphSpec.InputEntry: key:string, value:ModelOptimizationPolicy.Cuda.GraphSpec.Shape
ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound: batch_size:int32, input:ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.InputEntry*
ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.InputEntry: key:string, value:ModelOptimizationPolicy.Cuda.GraphSpec.Shape
ModelOptimizationPolicy.Cuda.GraphSpec.Shape: dim:int64*
ModelOptimizationPolicy.ExecutionAccelerators: gpu_execution_accelerator:ModelOptimizationPolicy.ExecutionAccelerators.Accelerator*,
  cpu_execution_accelerator:ModelOptimizationPolicy.ExecutionAccelerators.Accelerator*
ModelOptimizationPolicy.ExecutionAccelerators.Accelerator: name:string,
  parameters:ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.ParametersEntry*
ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.ParametersEntry: key:string, value:string
ModelOptimizationPolicy.Graph: level:int32
ModelOptimizationPolicy.PinnedMemoryBuffer: enable:bool
ModelOutput: name:string, data_type:DataType, dims:int64*, reshape:ModelTensorReshape, label_filename:string, is_shape_tensor:bool,
  is_non_linear_format_io:bool
ModelParameter: string_value:string
ModelQueuePolicy: timeout_action:ModelQueuePolicy.TimeoutAction, default_timeout_microseconds:uint64, allow_timeout_override:bool,
  max_queue_size:uint32
ModelRateLimiter: resources:ModelRateLimiter.Resource*, priority:uint32
ModelRateLimiter.Resource: name:string, global:bool, count:uint32
ModelRepositoryAgents: agents:ModelRepositoryAgents.Agent*
ModelRepositoryAgents.Agent: name:string, parameters:ModelRepositoryAgents.Agent.ParametersEntry*
ModelRepositoryAgents.Agent.ParametersEntry: key:string, value:string
ModelResponseCache: enable:bool
ModelSequenceBatching: direct:ModelSequenceBatching.StrategyDirect/strategy_choice,
  oldest:ModelSequenceBatching.StrategyOldest/strategy_choice, max_sequence_idle_microseconds:uint64,
  control_input:ModelSequenceBatching.ControlInput*, state:ModelSequenceBatching.State*, iterative_sequence:bool
ModelSequenceBatching.Control: kind:ModelSequenceBatching.Control.Kind, int32_false_true:int32*, fp32_false_true:float*,
  bool_false_true:bool*, data_type:DataType
ModelSequenceBatching.ControlInput: name:string, control:ModelSequenceBatching.Control*
ModelSequenceBatching.InitialState: data_type:DataType, dims:int64*, zero_data:bool/state_data, data_file:string/state_data, name:string
ModelSequenceBatching.State: input_name:string, output_name:string, data_type:DataType, dims:int64*,
  initial_state:ModelSequenceBatching.InitialState*, use_same_buffer_for_input_output:bool, use_growable_memory:bool
ModelSequenceBatching.StrategyDirect: max_queue_delay_microseconds:uint64, minimum_slot_utilization:float
ModelSequenceBatching.StrategyOldest: max_candidate_sequences:int32, preferred_batch_size:int32*, max_queue_delay_microseconds:uint64,
  preserve_ordering:bool
ModelTensorReshape: shape:int64*
ModelTransactionPolicy: decoupled:bool
ModelVersionPolicy: latest:ModelVersionPolicy.Latest/policy_choice, all:ModelVersionPolicy.All/policy_choice,
  specific:ModelVersionPolicy.Specific/policy_choice
ModelVersionPolicy.All:
ModelVersionPolicy.Latest: num_versions:uint32
ModelVersionPolicy.Specific: versions:int64*
ModelWarmup: name:string, batch_size:uint32, inputs:ModelWarmup.InputsEntry*, count:uint32
ModelWarmup.Input: data_type:DataType, dims:int64*, zero_data:bool/input_data_type, random_data:bool/input_data_type,
  input_data_file:string/input_data_type
ModelWarmup.InputsEntry: key:string, value:ModelWarmup.Input
enum BatchInput.Kind: BATCH_ELEMENT_COUNT BATCH_ACCUMULATED_ELEMENT_COUNT BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO
  BATCH_MAX_ELEMENT_COUNT_AS_SHAPE BATCH_ITEM_SHAPE BATCH_ITEM_SHAPE_FLATTEN
enum BatchOutput.Kind: BATCH_SCATTER_WITH_INPUT_SHAPE
enum DataType: TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 TYPE_INT16 TYPE_INT32 TYPE_INT64 TYPE_FP16
  TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16
enum ModelInput.Format: FORMAT_NONE FORMAT_NHWC FORMAT_NCHW
enum ModelInstanceGroup.Kind: KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL
enum ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKind: KIND_NVDLA
enum ModelOptimizationPolicy.ModelPriority: PRIORITY_DEFAULT PRIORITY_MAX PRIORITY_MIN
enum ModelQueuePolicy.TimeoutAction: REJECT DELAY
enum ModelSequenceBatching.Control.Kind: CONTROL_SEQUENCE_START CONTROL_SEQUENCE_READY CONTROL_SEQUENCE_END CONTROL_SEQUENCE_CORRID
"""


@dataclass(frozen=True)
class FieldKind:
    """What a field may hold."""

    type: str
    """A scalar (`string`, `int64`…), or the name of a message or an enum."""
    is_repeated: bool
    oneof: str
    """Of the fields in one oneof at most one may be set; empty when it is in no oneof."""


def _fields(text: str) -> dict[str, FieldKind]:
    found = {}
    for entry in text.split(", ") if text else ():
        name, _, kind = entry.partition(":")
        kind, _, oneof = kind.partition("/")
        found[name] = FieldKind(kind.rstrip("*"), kind.endswith("*"), oneof)
    return found


_LINES = [line.partition(":")[::2] for line in TABLE.replace("\n  ", " ").splitlines()]
ENUMS = {name.removeprefix("enum "): tuple(text.split()) for name, text in _LINES if name.startswith("enum ")}
"""Values of each enum, by their numbers."""
MESSAGES = {name: _fields(text.strip()) for name, text in _LINES if not name.startswith("enum ")}
"""Fields of each message, by their names."""
