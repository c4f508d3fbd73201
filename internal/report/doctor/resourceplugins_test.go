package doctor

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// TestResourcePlugins: a plugin that does not answer is a problem, and so is one that was refused.
func TestResourcePlugins(t *testing.T) {
	on := config.ResourcePlugins{Directory: "/plugins"}
	up := api.ResourcePlugin{Resource: "example.com/nic", Answering: true, Calls: 3, Pods: 2}
	down := api.ResourcePlugin{Resource: "cpu", Calls: 3, Failed: 3, PendingRemovals: 1, Error: "no answer within 500ms"}
	refused := []api.RefusedPlugin{{Resource: "cpu", Reason: "a.sock is not a socket"}}
	for _, c := range []struct {
		configured config.ResourcePlugins
		found      *api.ResourcePlugins
		result     Result
		want       string
	}{
		{config.ResourcePlugins{}, nil, OK, "no resource plugin is configured"},
		{on, nil, OK, "no agent runs"},
		{on, &api.ResourcePlugins{}, OK, "no plugin has registered"},
		{on, &api.ResourcePlugins{Error: "in use"}, Problem, "plugins cannot register: in use"},
		{on, &api.ResourcePlugins{Plugins: []api.ResourcePlugin{up}}, OK, "example.com/nic: answers, allocations for 2 pods, 3 calls"},
		{on, &api.ResourcePlugins{Plugins: []api.ResourcePlugin{up, down}}, Problem, "cpu: does not answer, allocations for 0 pods, 1 ended pods not released yet, 3 calls, 3 failed: no answer"},
		{on, &api.ResourcePlugins{Refused: refused}, Problem, "the agent refused a plugin for cpu: a.sock is not a socket"},
	} {
		got := checkResourcePlugins(Check{}, c.configured, c.found)
		if got.Result != c.result || !strings.Contains(got.Found, c.want) {
			t.Errorf("%+v: %s %q, want %q", c.found, got.Result, got.Found, c.want)
		}
	}
}
