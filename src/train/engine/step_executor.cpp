#include "train/engine/step_executor.h"

#include <algorithm>

namespace drover {
namespace {

/// The ends of a link: activations leave the first rank, gradients the second.
constexpr int before_link = 0, after_link = 1;

std::string_view scope_name(PipelineActionKind kind) {
    return kind == PipelineActionKind::forward          ? "forward"
           : kind == PipelineActionKind::backward       ? "backward"
           : kind == PipelineActionKind::backward_input ? "backward of inputs"
                                                        : "backward of weights";
}

}  // namespace

StepExecutor::StepExecutor(CausalLm& model, PipelinePlan& plan, Backend& backend, const Mesh& mesh)
    : model_(model), plan_(plan), backend_(backend), mesh_(mesh), recorder_(backend.make_recorder()) {}

// -----------------------------------------------------------------------------------------------------
// messages

void StepExecutor::plan_messages(Arena& arena, Messages& messages, int incoming, const Shape& residual,
                                 DType dtype, DType balance_dtype, std::int64_t balance) {
    const auto make = [&] {
        Message message{.residual = arena.make(MemoryUse::transfers, dtype, residual), .balance = {}};
        if (model_.has_balance_loss())
            message.balance = arena.make(MemoryUse::transfers, balance_dtype, {balance});
        return message;
    };
    messages = {};
    for (int i = 0; i < transfer_buffers; ++i) messages.outgoing.push_back(make());
    for (int i = 0; i < incoming; ++i) {
        messages.incoming.push_back(make());
        messages.free.push_back(static_cast<std::size_t>(i));
    }
}

void StepExecutor::plan(Arena& arena, DType residual, std::int64_t held) {
    if (plan_.ranks() == 1) return;
    const Shape shape{held, model_.config().hidden_size};
    const MoeConfig& moe = model_.config().moe;
    plan_messages(arena, activations_, plan_.unread_activations(), shape, residual, DType::f64,
                  (moe.chosen + 1) * moe.experts);
    plan_messages(arena, gradients_, plan_.unread_gradients(), shape, residual, DType::f32, moe.experts);
}

StepExecutor::Message StepExecutor::part_of(const Message& message, const StepWork& work,
                                            int micro_batch) const {
    return {.residual = message.residual.rows(0, model_.held_tokens(work.tokens(micro_batch))),
            .balance = message.balance};
}

void StepExecutor::send(Stream stream, const StepWork& work, const PipelineAction& action) {
    const bool forward = action.kind == PipelineActionKind::send_activations;
    Messages& messages = forward ? activations_ : gradients_;
    Message& buffer = messages.outgoing[messages.next_outgoing];
    messages.next_outgoing = (messages.next_outgoing + 1) % messages.outgoing.size();
    for (Pending& earlier : buffer.pending) earlier.wait(stream);
    buffer.pending.clear();

    const Message message = part_of(buffer, work, action.micro_batch);
    const ChunkRun run = run_of(action);
    const Scope scope(backend_, stream, "send", action.micro_batch);
    if (forward)
        model_.put_output(stream, message.residual);
    else
        backend_.copy(stream, model_.input_gradient(run), message.residual);
    if (message.balance)
        backend_.copy(stream, forward ? model_.routing_sums() : model_.balance(), message.balance);

    Communicator& link = forward ? *mesh_.links().activations_out : *mesh_.links().gradients_out;
    for (const Tensor& part : {message.residual, message.balance})
        if (part) buffer.pending.push_back(link.start_send(stream, part, forward ? after_link : before_link));
}

void StepExecutor::receive(Stream stream, const StepWork& work, const PipelineAction& action) {
    const bool forward = action.kind == PipelineActionKind::receive_activations;
    Messages& messages = forward ? activations_ : gradients_;
    require(!messages.free.empty(), "a pipeline message without room");
    const std::size_t place = messages.free.back();
    messages.free.pop_back();
    messages.unread[{action.stage, action.micro_batch}] = place;

    Message& buffer = messages.incoming[place];
    const Message message = part_of(buffer, work, action.micro_batch);
    Communicator& link = forward ? *mesh_.links().activations_in : *mesh_.links().gradients_in;
    for (const Tensor& part : {message.residual, message.balance})
        if (part)
            buffer.pending.push_back(link.start_receive(stream, part, forward ? before_link : after_link));
}

StepExecutor::Message& StepExecutor::read(Stream stream, Messages& messages, const PipelineAction& action) {
    Message& message = messages.incoming[messages.unread.at({action.stage, action.micro_batch})];
    for (Pending& part : message.pending) part.wait(stream);
    message.pending.clear();
    return message;
}

void StepExecutor::free(Messages& messages, const PipelineAction& action) {
    const auto found = messages.unread.find({action.stage, action.micro_batch});
    messages.free.push_back(found->second);
    messages.unread.erase(found);
}

// -----------------------------------------------------------------------------------------------------
// computation

ChunkRun StepExecutor::run_of(const PipelineAction& action) const {
    const int chunk = action.stage / plan_.ranks();
    return {
        .chunk = chunk, .slot = action.micro_batch % plan_.slots(chunk), .batch = batch(action.micro_batch)};
}

void StepExecutor::begin(Stream stream, const PipelineAction& action, std::optional<Scope>& scope,
                         bool trains) {
    if (log_) log_->begin(stream);
    scope.emplace(backend_, stream, trains ? scope_name(action.kind) : "evaluation", action.micro_batch);
}

void StepExecutor::forward(Stream stream, const StepWork& work, const PipelineAction& action, bool trains) {
    const ChunkRun run = run_of(action);
    std::optional<Scope> scope;
    if (action.stage == 0) {
        begin(stream, action, scope, trains);
        if (trains) model_.clear_routing_sums(stream);
        model_.forward(stream, run, {}, work.watch);
    } else {
        const Message message = part_of(read(stream, activations_, action), work, action.micro_batch);
        begin(stream, action, scope, trains);  // waiting does not count
        model_.forward(stream, run,
                       {.residual = message.residual, .routing_sums = trains ? message.balance : Tensor()},
                       work.watch);
        free(activations_, action);
    }
    if (!is_last_stage(action.stage)) return;
    if (!trains) {
        model_.evaluate_loss(stream, run, work.watch);
        work.after_head(action.micro_batch);
        return;
    }
    model_.balance_experts(stream, work.balance_scale);
}

void StepExecutor::backward(Stream stream, const StepWork& work, const PipelineAction& action) {
    const ChunkRun run = run_of(action);
    ChunkBackward settings{
        .place = {.first = action.micro_batch == 0, .last = action.micro_batch + 1 == work.micro_batches}};
    std::optional<Scope> scope;
    if (action.kind == PipelineActionKind::backward_weight) {
        begin(stream, action, scope);
        settings.part = BackwardPart::weights;
        return model_.backward(stream, run, settings);
    }
    if (action.kind == PipelineActionKind::backward_input) settings.part = BackwardPart::input;
    if (is_last_stage(action.stage)) {
        begin(stream, action, scope);
        settings.loss_scale = work.loss_scale;
        return model_.backward(stream, run, settings);
    }
    const Message message = part_of(read(stream, gradients_, action), work, action.micro_batch);
    begin(stream, action, scope);
    settings.dresidual = message.residual;
    settings.balance = message.balance;
    model_.backward(stream, run, settings);
    free(gradients_, action);
}

/// The whole model, for one micro-batch: what can be recorded.
void StepExecutor::forward_and_backward(Stream stream, const StepWork& work, const PipelineAction& forward,
                                        const PipelineAction& backward) {
    const DeviceBatch& micro = batch(forward.micro_batch);
    const auto enqueue = [&] {
        this->forward(stream, work, forward, true);
        this->backward(stream, work, backward);
    };
    if (!work.is_recorded(micro)) return enqueue();
    const RecordingKey key = {reinterpret_cast<std::intptr_t>(micro.ids.raw()), micro.sequences.rows,
                              micro.sequences.row_length, forward.micro_batch == 0};
    backend_.run_recorded(*recorder_, stream, key, enqueue);
}

/// Sharded weights arrive while this rank waits for a message.
void StepExecutor::gather_for_next(Stream stream, const std::vector<PipelineAction>& actions,
                                   std::size_t index) {
    const auto next = std::find_if(actions.begin() + static_cast<std::ptrdiff_t>(index) + 1, actions.end(),
                                   [](const PipelineAction& action) { return is_computation(action.kind); });
    if (next == actions.end()) return;
    const bool forward = next->kind == PipelineActionKind::forward;
    model_.gather_ahead(stream, next->stage / plan_.ranks(), forward);
}

void StepExecutor::run(Stream stream, const StepWork& work, const std::vector<PipelineAction>& actions,
                       bool trains) {
    model_.prepare(stream);
    batches_.clear();
    for (std::size_t i = 0; i < actions.size(); ++i) {
        const PipelineAction& action = actions[i];
        const bool has_head = is_last_stage(action.stage);
        switch (action.kind) {
            case PipelineActionKind::forward: {
                if (static_cast<int>(batches_.size()) == action.micro_batch)
                    batches_.push_back(work.upload(action.micro_batch));
                // The head reads what its chunk's forward has left.
                require(!trains || !has_head || backward_comes_next(actions, i),
                        "a schedule in which the head's backward does not follow its forward");
                if (plan_.ranks() == 1 && trains && log_ == nullptr) {
                    work.before_head(action.micro_batch);
                    forward_and_backward(stream, work, action, actions[++i]);
                    work.after_head(action.micro_batch);
                } else {
                    forward(stream, work, action, trains);
                }
                break;
            }
            case PipelineActionKind::backward:
            case PipelineActionKind::backward_input:
                if (has_head) work.before_head(action.micro_batch);
                backward(stream, work, action);
                if (has_head) work.after_head(action.micro_batch);
                break;
            case PipelineActionKind::backward_weight:
                backward(stream, work, action);
                break;
            case PipelineActionKind::send_activations:
            case PipelineActionKind::send_gradients:
                send(stream, work, action);
                break;
            case PipelineActionKind::receive_activations:
            case PipelineActionKind::receive_gradients:
                receive(stream, work, action);
                break;
            default:
                bug("a pipeline action that the executor does not know");
        }
        if (!is_computation(action.kind)) continue;
        if (log_) log_->end(stream, action);
        if (plan_.ranks() > 1) gather_for_next(stream, actions, i);
    }
    // A buffer that was sent may be written in the next step.
    for (Messages* messages : {&activations_, &gradients_})
        for (Message& message : messages->outgoing) {
            for (Pending& part : message.pending) part.wait(stream);
            message.pending.clear();
        }
}

void StepExecutor::train(Stream stream, const StepWork& work) {
    run(stream, work, plan_.training(work.micro_batches), true);
}

void StepExecutor::evaluate(Stream stream, const StepWork& work) {
    run(stream, work, plan_.evaluation(work.micro_batches), false);
}

}  // namespace drover
