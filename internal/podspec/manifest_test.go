package podspec

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {of: deployment}}
spec:
  template:
    metadata: {labels: {koordinator.sh/qosClass: LS}}
    spec:
      containers:
      - name: c
        env: [{name: A, value: b}, {name: N, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        resources: {requests: {cpu: 500m}, limits: {cpu: 2, memory: 1Gi}}
`

func TestManifests(t *testing.T) {
	pod := func(resources string) string {
		return "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: " + resources + "}]}\n"
	}
	for _, c := range []struct{ name, text, qos string }{
		{"nothing asked for", pod("{}"), "BestEffort"},
		{"limits alone", pod("{limits: {cpu: 1, memory: 1Gi}}"), "Guaranteed"},
		{"a limit alone", pod("{limits: {cpu: 1}}"), "Burstable"},
		{"a request alone", pod("{requests: {memory: 1Gi}}"), "Burstable"},
		{"other resources", pod("{limits: {nvidia.com/gpu: 1}}"), "BestEffort"},
		{"request below limit", pod("{requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}"), "Burstable"},
		{"a workload", workload, "Burstable"},
		{"a list in JSON", `{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}]}`, "BestEffort"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, _, err := Manifests([]byte("---\n" + c.text + "\n---\n"))
			if err != nil || len(all) != 1 {
				t.Fatalf("%d pods, %v", len(all), err)
			}
			if got := all[0].Spec.QoS; got != c.qos {
				t.Errorf("QoS class %s, want %s", got, c.qos)
			}
		})
	}
	all, passed, err := Manifests([]byte(workload + "---\nkind: Service\n---\n" + pod("{limits: {cpu: 1}}") + "---\nkind: List\nitems: [{kind: Service}, {kind: Secret}]\n"))
	if err != nil || len(all) != 2 {
		t.Fatalf("%d pods, %v", len(all), err)
	}
	if d := cmp.Diff([]string{"1 Secret", "2 Service"}, passed); d != "" {
		t.Errorf("passed over (-want +got):\n%s", d)
	}
	web := all[0]
	want := lifecycle.Amounts{"cpu": 500, "memory": 1 << 30}
	if d := cmp.Diff(want, web.Spec.Containers[0].Requests); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
	if web.Spec.Namespace != "shop" || web.Spec.Name != "web" || web.Labels["koordinator.sh/qosClass"] != "LS" || web.Labels["of"] != "" {
		t.Errorf("the pod of a workload is %+v with %v", web.Spec, web.Labels)
	}
	if d := cmp.Diff([]string{"A=b", "N="}, web.Env["c"]); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
}

func TestCronJob(t *testing.T) {
	all, _, err := Manifests([]byte("kind: CronJob\nmetadata: {name: nightly, namespace: batch}\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c}]}}}}}"))
	if err != nil || len(all) != 1 || all[0].Spec.Name != "nightly" || all[0].Spec.Namespace != "batch" {
		t.Fatalf("%+v, %v", all, err)
	}
}

func TestManifestsRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"":                          "no pod",
		"---\n---\n":                "no pod",
		"kind: Service":             "no pod or workload, only 1 Service",
		"a: [":                      "document 1",
		"kind: Pod\n---\nkind: Pod": "no spec",
		"kind: Pod\nmetadata: {name: x}\nspec: {containers: 7}":                                          "pod default/x",
		"kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, resources: {limits: {cpu: x}}}]}": `"cpu"`,
		"kind: List\nitems: [{kind: Secret}]":                                                            "only 1 Secret",
		"kind: List\nitems: [{kind: Pod}]":                                                               "item 1",
		"a: b":                                                                                           "no kind",
		"kind: CronJob\nspec: {jobTemplate: 7}":                                                          "document 1",
	} {
		if _, _, err := Manifests([]byte(text)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q gives %v, want %q", text, err, reason)
		}
	}
}

func TestPodResources(t *testing.T) {
	c := func(kind lifecycle.ContainerKind, request, limit int64) lifecycle.ContainerSpec {
		out := lifecycle.ContainerSpec{Kind: kind, Requests: lifecycle.Amounts{"cpu": request}, Limits: lifecycle.Amounts{}}
		if limit > 0 {
			out.Limits["cpu"] = limit
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		qos    string
		of     []lifecycle.ContainerSpec
		shares uint64
		quota  int64
	}{
		{"nothing", "BestEffort", []lifecycle.ContainerSpec{c(lifecycle.App, 0, 0)}, 2, 0},
		{"two with limits", "Burstable", []lifecycle.ContainerSpec{c(lifecycle.App, 500, 1000), c(lifecycle.App, 250, 500)}, 768, 150_000},
		{"one without", "Burstable", []lifecycle.ContainerSpec{c(lifecycle.App, 500, 1000), c(lifecycle.App, 250, 0)}, 768, 0},
		{"a larger init container", "Burstable", []lifecycle.ContainerSpec{c(lifecycle.Init, 2000, 2000), c(lifecycle.App, 250, 500)}, 2048, 200_000},
		{"a sidecar counts beside", "Burstable", []lifecycle.ContainerSpec{c(lifecycle.Sidecar, 1000, 1000), c(lifecycle.App, 1000, 1000)}, 2048, 200_000},
		{"a sidecar beside a larger init container after it", "Burstable", []lifecycle.ContainerSpec{
			c(lifecycle.Sidecar, 1000, 1000), c(lifecycle.Init, 6000, 6000), c(lifecycle.App, 2000, 2000),
		}, 7168, 700_000},
		{"a sidecar that starts after it", "Burstable", []lifecycle.ContainerSpec{
			c(lifecycle.Init, 6000, 6000), c(lifecycle.Sidecar, 1000, 1000), c(lifecycle.App, 2000, 2000),
		}, 6144, 600_000},
		{"an init container without a limit beside a sidecar with one", "Burstable", []lifecycle.ContainerSpec{
			c(lifecycle.Sidecar, 1000, 1000), c(lifecycle.Init, 0, 0), c(lifecycle.App, 1000, 1000),
		}, 2048, 200_000},
		{"one that was added while it runs", "Burstable", []lifecycle.ContainerSpec{c(lifecycle.App, 1000, 1000), c(lifecycle.Ephemeral, 0, 0)}, 1024, 100_000},
		{"the least", "Burstable", []lifecycle.ContainerSpec{c(lifecycle.App, 1, 1)}, 2, 1000},
	} {
		r := PodResources(&lifecycle.PodSpec{QoS: tc.qos, Containers: tc.of})
		if r.CPU.Shares.V != tc.shares || r.CPU.Quota.V != tc.quota || r.CPU.Quota.Set != (tc.quota != 0) {
			t.Errorf("%s: %d shares and quota %+v, want %d and %d", tc.name, r.CPU.Shares.V, r.CPU.Quota, tc.shares, tc.quota)
		}
	}
}

// TestPodResourcesOfItsOwn: overhead, and the requests of a pod as a whole.
func TestPodResourcesOfItsOwn(t *testing.T) {
	amounts := func(milli int64) lifecycle.Amounts { return lifecycle.Amounts{"cpu": milli} }
	app := []lifecycle.ContainerSpec{{Requests: amounts(1000), Limits: amounts(1000)}}
	for name, c := range map[string]struct {
		of     lifecycle.PodSpec
		shares uint64
		quota  int64
	}{
		"overhead":                     {lifecycle.PodSpec{Containers: app, Overhead: amounts(500)}, 1536, 150_000},
		"of the pod":                   {lifecycle.PodSpec{Containers: app, Requests: amounts(3000), Limits: amounts(4000)}, 3072, 400_000},
		"of the pod, and overhead":     {lifecycle.PodSpec{Containers: app, Requests: amounts(3000), Overhead: amounts(1000)}, 4096, 200_000},
		"a limit of the pod":           {lifecycle.PodSpec{Containers: app, Limits: amounts(4000)}, 1024, 400_000},
		"a limit of the pod, no other": {lifecycle.PodSpec{Containers: make([]lifecycle.ContainerSpec, 1), Limits: amounts(4000)}, 4096, 400_000},
	} {
		r := PodResources(&c.of)
		if r.CPU.Shares.V != c.shares || r.CPU.Quota.V != c.quota {
			t.Errorf("%s: %d shares and quota %d, want %d and %d", name, r.CPU.Shares.V, r.CPU.Quota.V, c.shares, c.quota)
		}
	}
}

// TestManifestTime: the time to read a manifest grows as its length does. A reader that goes through its input again
// for each element takes 16 times as long for 4 times the elements.
func TestManifestTime(t *testing.T) {
	fastest := func(elements int) time.Duration {
		text := []byte("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, env: [" + strings.Repeat("{name: v}, ", elements) + "]}]}")
		least := time.Duration(math.MaxInt64)
		for range 5 {
			least = min(least, clock.Took(func() {
				if all, _, err := Manifests(text); err != nil || len(all) != 1 {
					t.Errorf("%d manifests, %v", len(all), err)
				}
			}))
		}
		return least
	}
	if few, many := fastest(2_500), fastest(10_000); many > 8*few {
		t.Errorf("2,500 elements take %s, 10,000 take %s, want at most 8 times as long", few, many)
	}
}

func FuzzManifests(f *testing.F) {
	f.Add(workload)
	f.Add(`{"kind":"List","items":[{"kind":"List","items":[]}]}`)
	f.Add("kind: Pod\nspec: {containers: [{resources: {limits: {cpu: 9e99}}}]}")
	f.Add(strings.Repeat("[", 9_000))
	f.Add("kind: Pod\nspec: {containers: [" + strings.Repeat("{name: a}, ", 10_000) + "]}")
	f.Add(strings.Repeat("---\nkind: Pod\n", 5_000))
	f.Fuzz(func(t *testing.T, text string) {
		clock.Bound(t, 5*len(text), func() { // parsing YAML takes time for each byte
			all, _, err := Manifests([]byte(text))
			if err != nil {
				return
			}
			for _, m := range all {
				PodResources(m.Spec)
				for _, c := range m.Spec.Containers {
					if r := c.Resources(); r.CPU.Shares.V < 2 || r.CPU.Shares.V > 262144 || r.CPU.Quota.Set && r.CPU.Quota.V < 1000 {
						t.Errorf("%+v gives %+v", c, r)
					}
				}
			}
		})
	})
}
