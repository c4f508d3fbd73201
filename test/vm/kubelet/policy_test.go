package kubelet_test

import (
	"strings"
	"testing"
)

// TestStaticPolicy runs the kubelet's static CPU manager beside the agent.
func TestStaticPolicy(t *testing.T) {
	n := boot(t, map[string]any{"podspec": map[string]any{"kubelet": map[string]any{"url": "https://127.0.0.1:10250", "insecureSkipVerify": true}}},
		map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
	mine := map[string]string{"cpu": "1", "memory": "128Mi"}
	n.apply(pod{name: "pinned", requests: mine, limits: mine})
	n.awaitAll("the kubelet's own", map[string]want{"pinned": {cpus: "1"}})
	n.apply(
		pod{name: "web", labels: map[string]string{class: "LS"}, requests: map[string]string{"cpu": "500m"}},
		pod{
			name: "db", labels: map[string]string{class: "LSR"}, annotations: map[string]string{assigned: `{"cpuset":"1"}`},
			requests: map[string]string{"cpu": "1"}, limits: map[string]string{"cpu": "1"},
		},
	)
	n.await("all", func() error {
		_, err := n.look("web")
		if err == nil {
			_, err = n.look("db")
		}
		return err
	})
	for _, name := range []string{"pinned", "web", "db"} {
		r, err := n.look(name)
		told, _ := n.a.explain("shop", static(name), "c")
		t.Logf("%s: uid %s, attempt %d, %+v, %+v, %v, told %+v", name, r.uid, r.attempt, r.own, r.pod, err, told)
	}
	t.Log(n.m.Read(kubeletRoot + "/cpu_manager_state"))
	s, _ := n.a.status()
	t.Logf("%+v", s)
	result, found := n.doctor("kubelet cpu manager")
	t.Log(result, found)
	if result != "problem" || !strings.Contains(found, "static") {
		t.Errorf("doctor: %s: %s", result, found)
	}
}
