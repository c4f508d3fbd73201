package kubelet

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestGiven: the report of the PodResources API has priority, otherwise the request to the runtime counts,
// and contradictions are reported.
func TestGiven(t *testing.T) {
	m, err := describe.Parse("1s x 2n x 4c")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		qos           intent.QoS
		asked, mems   string
		shares        uint64
		says          string // "" for no CPUs
		cpus, problem string
		nodes         string
	}{
		{name: "nothing"},
		{name: "the mark of the static manager", asked: "2-3", shares: 2048, cpus: "2-3"},
		{name: "in a Burstable pod", qos: intent.Burstable, asked: "2-3", shares: 2048},
		{name: "what is left for all", asked: "0-5", shares: 2048},
		{name: "the API says so", qos: intent.Burstable, says: "4", cpus: "4"},
		{name: "the API says another", asked: "2-3", shares: 2048, says: "4-5", cpus: "4-5", problem: "reports that the container has CPUs 4-5"},
		{name: "the API says none", asked: "2-3", shares: 2048, says: "none", problem: "reports no exclusive CPUs"},
		{name: "memory", mems: "1", nodes: "1"},
	} {
		s := placement.Subject{Intent: &intent.Pod{QoS: c.qos}, Requested: &lifecycle.Resources{}, KubeletGrant: lifecycle.StaticGrant{Reported: c.says != ""}}
		s.Requested.CPU.CPUs, s.Requested.CPU.Mems, s.Requested.CPU.Shares = c.asked, c.mems, lifecycle.Some(c.shares)
		if c.says != "none" {
			if s.KubeletGrant.CPUs, err = topology.ParseList(c.says); err != nil {
				t.Fatal(err)
			}
		}
		got := Policy{Policy: none.Policy{}}.Terms(m, s)
		said := ""
		for _, q := range got.External.Problems {
			said += q.String()
		}
		if got.NoGrantReason == nil || m.Format(got.External.CPUs) != c.cpus || topology.FormatList(got.External.Mems) != c.nodes ||
			(c.problem == "") != (said == "") || !strings.Contains(said, c.problem) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// whole is a policy that gives whole CPUs to every container that requests them.
type whole struct{ none.Policy }

func (whole) Terms(*topology.Machine, placement.Subject) placement.Terms {
	return placement.Terms{ChoosesCPUsOrMemory: true, CountBasis: placement.CountWholeRequest, Key: "key", NearDevices: true}
}

// TestNobodyElse: only the kubelet gives the whole CPUs that the other policy would give.
func TestNobodyElse(t *testing.T) {
	got := Policy{Policy: whole{}}.Terms(nil, placement.Subject{Intent: &intent.Pod{}})
	if got.CountBasis != placement.CountNone || !got.ChoosesCPUsOrMemory || got.NoGrantReason == nil {
		t.Errorf("%+v", got)
	}
}
