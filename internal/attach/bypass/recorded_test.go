package bypass

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func recordedStatus(t *testing.T, name string) *verbose {
	t.Helper()
	text, err := os.ReadFile("testdata/crio-1.36.3/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct{ Info json.RawMessage }
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	v, err := readVerbose(map[string]string{"info": string(recorded.Info)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestRecordedStatus: what CRI-O tells of pods and containers, which has no
// configuration.
func TestRecordedStatus(t *testing.T) {
	for name, want := range map[string]*lifecycle.Resources{
		"inspectp-lsr.json": {
			CPU:    lifecycle.CPU{Shares: lifecycle.Some(uint64(1024)), Quota: lifecycle.Some(int64(100000)), Period: lifecycle.Some(uint64(100000))},
			Memory: lifecycle.Memory{Limit: lifecycle.Some(int64(268435456))},
		},
		"inspectp-be.json": {CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2))}},
		"inspectp-ls.json": {CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(512))}},
	} {
		v := recordedStatus(t, name)
		p := podIn(&cri.PodSandboxStatus{Id: "p"}, v)
		if d := cmp.Diff(want, p.Resources); d != "" || p.CgroupParent == "" || p.Overhead != nil {
			t.Errorf("%s: below %q, overhead %v, resources\n%s", name, p.CgroupParent, p.Overhead, d)
		}
		// What a pod's author writes there is not the runtime's word.
		own := map[string]string{"pod-linux-resources.crio.io": "{}", "io.kubernetes.cri-o.CgroupParent": "/theirs"}
		if p := podIn(&cri.PodSandboxStatus{Annotations: own}, v); p.Resources != nil || p.CgroupParent != "" {
			t.Errorf("%s: it was believed: %+v below %q", name, p.Resources, p.CgroupParent)
		}
	}
	c := containerIn(&cri.ContainerStatus{Id: "c"}, recordedStatus(t, "inspect-be.json"), "p")
	if c.Resources.CPU.Shares.V != 2 || c.CgroupsPath == "" || c.PID == 0 {
		t.Errorf("%+v", c)
	}
}
