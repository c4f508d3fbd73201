package hook

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
)

// TestInterfacesAtCreation: a container is created with an interface only while the host has it and no other container
// of the pod moves it. What it was created without stays away at later decisions.
func TestInterfacesAtCreation(t *testing.T) {
	t.Parallel()
	whole := &intent.Pod{PodInterfaces: intent.Sourced[[]intent.NetDevice]{V: []intent.NetDevice{{Host: "eth1", Name: "net0"}}, Key: intent.NRIPodNetwork}}
	both := *whole
	both.NetDevices = podWide([]intent.NetDevice{{Host: "eth1", Name: "net0"}, {Host: "eth2", Name: "net2"}})
	twice := *whole
	twice.NetDevices = podWide([]intent.NetDevice{{Host: "eth1", Name: "other"}, {Host: "eth2", Name: "net0"}})
	const away = "the host has no such network interface"
	for _, c := range []struct {
		name          string
		pod           *intent.Pod
		at            *Creation
		had           []string
		want, skipped []string
		wrong         string
	}{
		{name: "the host has it", pod: whole, at: &Creation{HostInterfaces: map[string]bool{"eth1": true}}, want: []string{"eth1 net0"}},
		{name: "unknown", pod: whole, at: &Creation{}, want: []string{"eth1 net0"}},
		{name: "the host does not have it", pod: whole, at: &Creation{HostInterfaces: map[string]bool{"eth1": false}}, skipped: []string{"eth1"}, wrong: away},
		{name: "the pod has it", pod: whole, at: &Creation{HostInterfaces: map[string]bool{"eth1": false}, PodInterfaces: map[string]bool{"eth1": false}}, skipped: []string{"eth1"}},
		{name: "the pod has it, and the host is unknown", pod: whole, at: &Creation{PodInterfaces: map[string]bool{"eth1": false}}, skipped: []string{"eth1"}},
		{name: "another container will move it", pod: whole, at: &Creation{HostInterfaces: map[string]bool{"eth1": true}, PodInterfaces: map[string]bool{"eth1": true}}, skipped: []string{"eth1"}},
		{name: "it came back, for the other container did not start", pod: whole, at: &Creation{HostInterfaces: map[string]bool{"eth1": true}, PodInterfaces: map[string]bool{"eth1": false}}, want: []string{"eth1 net0"}},
		{name: "later", pod: whole, want: []string{"eth1 net0"}},
		{name: "later, without it", pod: whole, had: []string{"eth1"}},
		{name: "both keys", pod: &both, at: &Creation{HostInterfaces: map[string]bool{"eth1": true, "eth2": false}}, want: []string{"eth1 net0"}, skipped: []string{"eth2"}, wrong: away},
		{name: "both keys, with other names", pod: &twice, at: &Creation{}, want: []string{"eth1 other", "eth2 net0"}, wrong: "another annotation of the pod uses this interface"},
	} {
		var out Output
		NetworkDevicesOptions{Allowed: []string{"eth*"}}.Propose(&Input{Intent: c.pod, Container: "a", Creation: c.at, SkippedInterfaces: c.had}, &out)
		var got []string
		for _, v := range out.Values {
			got = append(got, v.Key+" "+v.Text)
		}
		slices.Sort(got)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if d := cmp.Diff(c.skipped, out.SkippedInterfaces); d != "" {
			t.Errorf("%s: skipped: %s", c.name, d)
		}
		var said []string
		for _, p := range out.Problems {
			said = append(said, p.Reason)
		}
		if all := strings.Join(said, "; "); (all == "") != (c.wrong == "") || !strings.Contains(all, c.wrong) {
			t.Errorf("%s: reports %q, want %q", c.name, all, c.wrong)
		}
	}
}
