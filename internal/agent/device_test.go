package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/report/devices"
)

// TestDeviceReport: status and object report the same omissions, according to the Node's present labels.
// Nothing is reported while the node is not this agent's, or while its devices cannot be read.
func TestDeviceReport(t *testing.T) {
	var gate, broken error
	r := &deviceReport{checkReportable: func() error { return gate }, read: func() (devices.Inventory, error) {
		return devices.Inventory{GPUs: []devices.GPU{{UUID: "GPU-1", Model: "T4"}}}, broken
	}}
	report := r.report()
	for _, tc := range []struct {
		labels map[string]string
		want   string
	}{{nil, "GPU memory: the Node has no label"}, {map[string]string{"nvidia.com/gpu.memory": "15360"}, "the Device object does not have: GPU health"}} {
		report.OnNodeLabels(tc.labels)
		if err := report.Ready(); err != nil {
			t.Fatal(err)
		}
		annotations, fields := report.Make()
		if note := report.Note(); !strings.Contains(note, tc.want) || annotations[devices.LeftOutAnnotation] != strings.TrimPrefix(note, "the Device object does not have: ") {
			t.Errorf("%v: %q, %v", tc.labels, note, annotations)
		}
		if fields["spec"] == nil {
			t.Error("no spec")
		}
	}
	broken = errors.New("input/output error")
	if err := report.Ready(); err == nil || !strings.Contains(err.Error(), "read the devices") {
		t.Errorf("unreadable: %v", err)
	}
	gate, broken = errors.New("standby: another"), nil
	if err := report.Ready(); !errors.Is(err, gate) {
		t.Errorf("on standby: %v", err)
	}
}
