package v1

// eventTypes is every type of event that the API stores, whether or not there are
// such events here: a filter may name them all.
var eventTypes = []string{
	"user.message", "user.interrupt", "user.tool_confirmation", "user.custom_tool_result", "user.tool_result", "user.define_outcome",
	"system.message",
	"agent.message", "agent.thinking", "agent.tool_use", "agent.tool_result", "agent.mcp_tool_use", "agent.mcp_tool_result", "agent.custom_tool_use",
	"agent.thread_context_compacted", "agent.thread_message_received", "agent.thread_message_sent",
	"session.error", "session.deleted", "session.updated", "session.usage",
	"session.status_rescheduled", "session.status_running", "session.status_idle", "session.status_terminated",
	"session.thread_created", "session.thread_status_rescheduled", "session.thread_status_running", "session.thread_status_idle",
	"session.thread_status_terminated",
	"span.model_request_start", "span.model_request_end",
	"span.outcome_evaluation_start", "span.outcome_evaluation_ongoing", "span.outcome_evaluation_end",
	"workflow_run.created", "workflow_run.error", "workflow_run.phase_ended", "workflow_run.phase_started",
	"workflow_run.status_ended", "workflow_run.status_idle", "workflow_run.status_running",
}
