package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/report/nodemetric"
)

// TestUsageMeter: the agent makes a report at the interval of the object's spec, and none while usage
// cannot be read.
func TestUsageMeter(t *testing.T) {
	notes := 0
	m := &usageMeter{interval: usageInterval, policy: nodemetric.Policy{}.WithDefaults(), changed: make(chan struct{}), logReadErr: func(error) { notes++ }}
	now, made := time.Now(), 0
	read := func(n int) {
		for range n {
			before := m.nextReport()
			m.addReading(nodemetric.Reading{At: now, Node: nodemetric.Counter{CPU: time.Hour, Bytes: 1}}, nil)
			now = now.Add(usageInterval)
			select {
			case <-before:
				made++
			default:
			}
		}
	}
	if err := m.ready(); err == nil || !strings.Contains(err.Error(), "long enough") {
		t.Errorf("before the first reading: %v", err)
	}
	read(2 + 8) // at once, after one minute, and after two
	if err := m.ready(); err != nil || made != 3 {
		t.Errorf("in two minutes and a half: %d reports, %v", made, err)
	}
	report := m.nodeMetric()
	report.OnRead(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"metricCollectPolicy": map[string]any{"reportIntervalSeconds": int64(120)}}}})
	read(16)
	if made != 5 {
		t.Errorf("%d reports, want two more in four minutes", made)
	}
	if _, fields := report.Make(); fields["status"] == nil {
		t.Error("no status")
	}
	for range 2 {
		m.addReading(nodemetric.Reading{}, errors.New("meminfo: no such file"))
	}
	if err := m.ready(); err == nil || notes != 1 {
		t.Errorf("without a reading: %v, noted %d times", err, notes)
	}
	read(1)
	if err := m.ready(); err != nil {
		t.Error(err)
	}

	// Another agent takes over the node, and then ends.
	m.checkReportable = func() error { return errors.New("standby: another") }
	if err := m.ready(); m.knowsPods() || m.ready() == nil || err != nil {
		t.Errorf("on standby: %v", m.ready())
	}
	m.checkReportable = func() error { return nil }
	if err := m.ready(); !m.knowsPods() || m.ready() == nil || strings.Contains(m.ready().Error(), "standby") {
		t.Errorf("after it: %v, %v", err, m.ready())
	}
	read(2)
	if err := m.ready(); err != nil {
		t.Error(err)
	}
}
