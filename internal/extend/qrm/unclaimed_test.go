package qrm

import (
	"testing"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
)

// TestUnclaimed: a pod that a plugin stops listing is forgotten, and the lists of other plugins do not matter.
func TestUnclaimed(t *testing.T) {
	m := &Manager{synced: true, unclaimed: map[removal]bool{}, o: Options{LivePods: func() map[string]bool { return map[string]bool{} }}}
	listed := map[string]*api.ContainerResources{"u": {}}
	m.adopt("nic", listed)
	m.adopt("other", nil)
	if !m.unclaimed[removal{"nic", "u"}] {
		t.Error("the list of another plugin ended the mark of a pod")
	}
	m.adopt("nic", nil)
	if len(m.unclaimed) != 0 {
		t.Errorf("a plugin stopped to list a pod, and its mark stays: %v", m.unclaimed)
	}
}
