package agent

import (
	"github.com/dormouse-run/dormouse"
	"github.com/dormouse-run/dormouse/agent/tool"
)

// evaluate decides whether a tool call runs at once or needs approval, and names the
// policy that decided it.
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

// judge allows calls that only read in the sandbox. It cannot judge the effects of any
// other call.
func judge(asks tool.Request) dormouse.JudgedPermission {
	if asks.Action == nil && asks.Call.Kind == dormouse.OpRead {
		return dormouse.JudgedPermission{Type: dormouse.PermissionAllow}
	}
	return dormouse.JudgedPermission{Type: dormouse.PermissionAsk, Reason: dormouse.ReasonIndeterminate}
}
