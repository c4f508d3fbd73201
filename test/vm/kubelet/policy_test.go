package kubelet_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStaticPolicy runs the kubelet's static CPU manager beside the agent, which is requested to grant a
// CPU that the kubelet assigned. The specs of pods come from /pods.
func TestStaticPolicy(t *testing.T) {
	t.Parallel()
	testTurns.Play(t)
	keys := map[string]any{"podspec": map[string]any{"kubelet": map[string]any{"url": "https://127.0.0.1:10250", "insecureSkipVerify": true}}}
	n := boot(t, keys, map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
	one := map[string]string{"cpu": "1", "memory": "128Mi"}
	wants := map[string]want{"pinned": {cpus: "1", class: "none", source: podsList}}
	n.apply(pod{name: "pinned", requests: one, limits: one})
	n.awaitAll("a CPU of the kubelet's", wants)

	db := owner("db", "1", map[string]string{"cpu": "1"}) // without a memory request it is Burstable: the kubelet assigns it no CPUs
	n.apply(db)
	wants["db"] = want{cpus: "0,2-3", quota: 100_000, class: "dedicated", problem: "given to shop/" + static("pinned") + " by the kubelet", source: podsList}
	before := n.awaitAll("assigned by a scheduler that knows nothing of it", wants)
	n.toldBy(podsList, len(wants))
	if state := n.m.Read(kubeletRoot + "/cpu_manager_state"); !strings.Contains(state, `{"c":"1"}`) {
		t.Errorf("the kubelet gave CPU 1 to nobody: %s", state)
	}
	if result, found := n.doctor("kubelet cpu manager"); result != "problem" || !strings.Contains(found, "CPUs 1 are assigned to 1 container") {
		t.Errorf("doctor: %s: %s", result, found)
	}

	n.end()
	n.run()
	n.apply(pod{name: "late", requests: map[string]string{"memory": "16Mi"}}) // the others request all CPUs of this node
	wants["late"] = want{cpus: "0,2-3", class: "none", source: podsList}
	n.unmoved(before, n.awaitAll("kubelet restarted", wants))

	// The same node with authority: kubelet: the CPUs that the kubelet assigns are taken from all others,
	// and pools use the rest.
	keys["authority"], keys["placement"] = "kubelet", map[string]any{"policy": "pools", "reclaim": "leftover"}
	text, err := json.Marshal(keys)
	if err == nil {
		err = n.a.Reconfigure(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.apply(pod{name: "second", requests: one, limits: one})
	wants["pinned"] = want{cpus: "1", class: "none", seat: "exclusive", source: podsList}
	wants["second"] = want{cpus: "2", class: "none", seat: "exclusive", source: podsList}
	wants["db"] = want{cpus: "0", quota: 100_000, class: "dedicated", seat: "shared", problem: "under authority: kubelet", source: podsList}
	wants["late"] = want{cpus: "0,3", class: "none", source: podsList}
	n.awaitAll("by the kubelet's word", wants)
	if result, found := n.doctor("kubelet cpu manager"); result != "ok" || !strings.Contains(found, "reported by the kubelet PodResources API") || !strings.Contains(found, "authority is kubelet") {
		t.Errorf("doctor: %s: %s", result, found)
	}
	// The grant is reported in words: the request also has its mark, and nothing differs.
	for _, name := range []string{"pinned", "second"} {
		found, err := n.a.Explain("shop", static(name), "c")
		if err != nil || len(found) != 1 || len(found[0].Problems) > 0 || !strings.Contains(found[0].SeatWhy, "its PodResources API reports these CPUs") {
			t.Errorf("explain %s: %+v (%v)", name, found, err)
		}
	}
}
