package qrm

import (
	"testing"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
)

// TestUnknownPods: a pod that a plugin stops listing is forgotten, and the lists of other plugins do not matter.
func TestUnknownPods(t *testing.T) {
	m := &Manager{releasedEnded: true, unknownPods: map[removal]bool{}, opts: Options{LivePods: func() map[string]bool { return map[string]bool{} }}}
	listed := map[string]*api.ContainerResources{"u": {}}
	m.adoptAllocations("nic", listed)
	m.adoptAllocations("other", nil)
	if !m.unknownPods[removal{"nic", "u"}] {
		t.Error("the list of another plugin ended the mark of a pod")
	}
	m.adoptAllocations("nic", nil)
	if len(m.unknownPods) != 0 {
		t.Errorf("a plugin stopped to list a pod, and its mark stays: %v", m.unknownPods)
	}
}
