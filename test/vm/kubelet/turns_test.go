package kubelet_test

import (
	"testing"

	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/rotation"
)

// theTurns are the parts of the rotation: every test of one guest, and TestTopologyManager with each attachment and
// policy, but for the part that every run plays.
var theTurns = rotation.NewTurns("turns.txt", func() ([]string, error) {
	all := []string{"TestNeeds", "TestProxyKilled", "TestStaticPods", "TestStaticPolicy"}
	for _, attach := range topologyAttachments {
		for _, policy := range topologyPolicies {
			if part := attach + "/" + policy; part != alwaysPart {
				all = append(all, part)
			}
		}
	}
	return all, nil
})

func TestMain(m *testing.M) { vm.Main(m, theTurns.Keep) }
