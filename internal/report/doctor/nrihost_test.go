package doctor

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/report/api"
)

// TestHosted: doctor names the plugins of the NRI host and what each sets, and reports those that failed.
func TestHosted(t *testing.T) {
	host := func(flow string, all ...api.NRIPlugin) *api.Node {
		return &api.Node{NRIHost: &api.NRIHost{Socket: "/run/n", Flow: flow, Error: "no listener", Plugins: all}}
	}
	sets := api.NRIPlugin{Name: "10-a", Connected: true, Calls: 1, Sets: []string{"env", "linux.resources.cpu.shares"}}
	for name, c := range map[string]struct {
		agent  *api.Node
		status Result
		want   string
	}{
		"no agent":     {nil, Unknown, "no agent runs that could report"},
		"not served":   {host(""), Problem, "no plugins are served: no listener"},
		"none":         {host("asked"), OK, "no plugin has connected to /run/n"},
		"one that set": {host("asked", sets), OK, "10-a (connected, 1 calls, 0 failed, 0s on average, 0s at most, sets env, linux.resources.cpu.shares)"},
		"one failed":   {host("asked", sets, api.NRIPlugin{Name: "20-b", Error: "timeout"}), Problem, "plugins that failed: 20-b (not connected to the socket: timeout)"},
	} {
		if got := checkNRIHost(Check{Name: "hosted nri plugins"}, c.agent); got.Result != c.status || !strings.Contains(got.Found, c.want) {
			t.Errorf("%s: %s %s", name, got.Result, got.Found)
		}
	}
}
