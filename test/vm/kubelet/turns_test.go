package kubelet_test

import (
	"errors"
	"testing"

	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/rotation"
)

// theTurns are the attachments and policies of TestTopologyManager that this run plays, beside alwaysPart. testTurns are
// the tests of one guest.
var (
	theTurns = rotation.NewTurns("turns.txt", func() (all []string, err error) {
		for _, attach := range topologyAttachments {
			for _, policy := range topologyPolicies {
				if part := attach + "/" + policy; part != alwaysPart {
					all = append(all, part)
				}
			}
		}
		return all, nil
	})
	testTurns = rotation.NewTurns("tests.txt", func() ([]string, error) {
		return []string{"TestNeeds", "TestProxyKilled", "TestStaticPods", "TestStaticPolicy"}, nil
	})
)

func TestMain(m *testing.M) {
	vm.Main(m, func() error { return errors.Join(theTurns.Keep(), testTurns.Keep()) })
}
