package agent

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
)

// evaluate says whether a tool call runs at once or is asked for, and by which
// policy.
func evaluate(policy dormouse.Permission, asks tool.Request) (dormouse.Permission, *dormouse.Evaluation) {
	switch policy {
	case dormouse.PermissionAsk:
		return dormouse.PermissionAsk, &dormouse.Evaluation{Type: dormouse.AlwaysAsk}
	case dormouse.PermissionAuto:
		judged := judge(asks)
		return judged.Type, &dormouse.Evaluation{Type: dormouse.AutoJudged, Permission: &judged}
	case dormouse.PermissionAllow:
	}
	return dormouse.PermissionAllow, &dormouse.Evaluation{Type: dormouse.AlwaysAllow}
}

// judge lets through what only reads in the sandbox. Of anything else it cannot say
// what would come of it.
func judge(asks tool.Request) dormouse.JudgedPermission {
	if asks.Wish == nil && asks.Call.Kind == dormouse.OpRead {
		return dormouse.JudgedPermission{Type: dormouse.PermissionAllow}
	}
	return dormouse.JudgedPermission{Type: dormouse.PermissionAsk, Reason: dormouse.ReasonIndeterminate}
}
