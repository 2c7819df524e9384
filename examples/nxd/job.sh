# Read by the run scripts beside it: where this node stands in the job, the sizes that follow from the number
# of processes, and how many steps are trained. Expects MODEL, LLAMA_VERSION, BLOCK (4k, 8k), TP_DEGREE and
# PP_DEGREE.
#
# Everything in capitals that has := can be set from outside.

# Where the checkpoints and TensorBoard's files of all nodes go.
: "${SHARED_DIR:=/shared}"
: "${GBS:=1024}"
# One process per GPU, or per core where there is none.
: "${PROCESSES_PER_NODE:=$(nvidia-smi --list-gpus 2>/dev/null | grep -c . || nproc)}"

# bfloat16 weights, as the original scripts have them; 0: float32.
export XLA_DOWNCAST_BF16=${XLA_DOWNCAST_BF16:-1}

corpus=wikicorpus_llama${LLAMA_VERSION}_tokenized_$BLOCK
: "${MASTER_PORT:=44000}"
NODES=1 NODEID=0 JOB_ID=$$
if [ -n "${SLURM_NTASKS:-}" ]; then # srun started one task per node
    NODES=$SLURM_NTASKS NODEID=$SLURM_NODEID JOB_ID=$SLURM_JOB_ID
    : "${MASTER_ADDR:=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}"
    : "${DATA_PATH:=$HOME/examples_datasets/$corpus}" "${METRICS_FILE:=results.json}"
    LOG_PATH=logs/$JOB_ID/$NODEID
elif [ -n "${OMPI_COMM_WORLD_RANK:-}" ]; then # mpirun did, on the pods of a Kubernetes job
    NODES=$OMPI_COMM_WORLD_SIZE NODEID=$OMPI_COMM_WORLD_RANK JOB_ID=${POD_UID:-$JOB_ID}
    : "${SHARED_PATH_PREFIX:=$HOME/examples_datasets}" "${ARTIFACT_PATH:=.}"
    [ "$NODES" = 1 ] || : "${MASTER_ADDR:?is not set: give the address of the first node}"
    : "${DATA_PATH:=$SHARED_PATH_PREFIX/$corpus}" "${METRICS_FILE:=$ARTIFACT_PATH/results.json}"
    LOG_PATH=$ARTIFACT_PATH/logs/$JOB_ID/$NODEID
else
    : "${DATA_PATH:=$HOME/examples_datasets/$corpus}" "${METRICS_FILE:=results.json}"
    LOG_PATH=logs
fi
DISTRIBUTED_ARGS="--nproc_per_node $PROCESSES_PER_NODE"
if [ "$NODES" -gt 1 ]; then
    DISTRIBUTED_ARGS+=" --nnodes $NODES --node_rank $NODEID --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
    # Nodes recognise each other by a secret; the first one makes it.
    DISTRIBUTED_ARGS+=" --secret_file $SHARED_DIR/drover-$JOB_ID.secret"
fi
mkdir -p "$LOG_PATH"

DP=$((PROCESSES_PER_NODE * NODES / (TP_DEGREE * PP_DEGREE)))
if [ $((DP * TP_DEGREE * PP_DEGREE)) != $((PROCESSES_PER_NODE * NODES)) ] || [ "$DP" = 0 ] || [ $((GBS % DP)) != 0 ]; then
    echo "$0: $((PROCESSES_PER_NODE * NODES)) processes with TP_DEGREE=$TP_DEGREE, PP_DEGREE=$PP_DEGREE and GBS=$GBS:" \
        'the processes must be a multiple of both degrees together, and GBS one of the replicas that result.' >&2
    exit 2
fi
# Every micro-batch is one sequence.
BS=$((GBS / DP))
NUM_MICROBATCHES=$BS

checkpoint_freq=-1
tb_dir=$SHARED_DIR/tensorboard/llama${LLAMA_VERSION}_${MODEL}_${NODES}nodes_$JOB_ID
if [ "${NEURON_EXTRACT_GRAPHS_ONLY:-0}" = 1 ]; then
    max_steps=10
    tb_dir=$SHARED_DIR/tensorboard/llama${LLAMA_VERSION}_${MODEL}_compile
elif [ "${PERF_TEST:-0}" -gt 0 ]; then
    max_steps=${EARLY_EXIT_STEPS:-100}
else
    max_steps=30000
    checkpoint_freq=30000
fi
echo "Node $NODEID of $NODES ($(hostname)): $PROCESSES_PER_NODE processes, TP $TP_DEGREE, PP $PP_DEGREE, DP $DP, GBS $GBS"
