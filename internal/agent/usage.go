package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/publish"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/nodemetric"
	"github.com/trimtab/trimtab/internal/report/usage"
	"github.com/trimtab/trimtab/internal/sleep"
)

// usageInterval is how often the agent reads the CPU and memory usage of the node and its pods. Each time it reads two
// files for each pod.
const usageInterval = 15 * time.Second

// usageMeter measures the CPU and memory usage of the node and its pods. It implements kube.Service.
type usageMeter struct {
	// checkReportable returns the reason why the agent does not know the node's pods; nil if it does.
	checkReportable func() error
	read            func() (nodemetric.Reading, error) // reads the usage now
	interval        time.Duration                      // the pause between two readings
	logReadErr      func(error)                        // logs the error of read

	mu            sync.Mutex // guards all below
	history       nodemetric.History
	policy        nodemetric.Policy // how often to report, and over which times usage is averaged
	lastReport    map[string]any    // the status of the NodeMetric object
	reportTime    time.Time         // when the report was made; zero if there is none
	readErr       error             // the error of the last call of read
	reportableErr error             // the result of the last call of checkReportable
	changed       chan struct{}     // closed when the next report is made
}

func (a *Agent) newUsageMeter() *usageMeter {
	return &usageMeter{
		checkReportable: a.checkReportable, read: a.readUsage, interval: usageInterval, policy: nodemetric.Policy{}.WithDefaults(), changed: make(chan struct{}),
		logReadErr: func(err error) {
			a.log.Warn("the agent cannot measure the CPU and memory usage of the node", logkey.Err, err)
		},
	}
}

// nodeMetric returns the report for the node's NodeMetric object.
func (m *usageMeter) nodeMetric() publish.Report {
	return publish.Report{
		Kind:     "NodeMetric",
		Resource: schema.GroupVersionResource{Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodemetrics"},
		Key:      "status.nodeMetric", HasStatusSubresource: true, Ready: m.ready, Changed: m.nextReport,
		Make: func() (map[string]string, map[string]any) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return nil, m.lastReport
		},
		OnRead: func(o *unstructured.Unstructured) {
			p := nodemetric.PolicyOf(o.Object)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.policy = p
		},
	}
}

// Run reads usage until ctx ends.
func (m *usageMeter) Run(ctx context.Context) {
	for {
		if m.knowsPods() {
			m.addReading(m.read())
		}
		if !sleep.For(ctx, m.interval) {
			return
		}
	}
}

// knowsPods reports whether the agent knows the node's pods. If it does not know them, knowsPods deletes the earlier
// readings and the last report, because these possibly belong to other pods.
func (m *usageMeter) knowsPods() bool {
	err := m.checkReportable()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reportableErr = err; err != nil {
		m.history, m.reportTime = nodemetric.History{}, time.Time{}
	}
	return err == nil
}

// addReading stores a reading of the usage. It makes a report if there are enough readings for averages, and the last
// report is old enough. If err is not nil, addReading only stores err. If several readings fail in a row, it logs only
// the first error.
func (m *usageMeter) addReading(r nodemetric.Reading, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.readErr == nil {
			m.logReadErr(err)
		}
		m.readErr = err
		return
	}
	m.readErr = nil
	m.history.Add(r, m.policy.Average)
	if !m.history.CanReport() || !m.reportTime.IsZero() && r.At.Sub(m.reportTime) < m.policy.Interval-m.interval/2 {
		return
	}
	m.lastReport, m.reportTime = m.history.Status(m.policy, kube.FormatTime(r.At)), r.At
	close(m.changed)
	m.changed = make(chan struct{})
}

// ready returns the reason why there is nothing to report yet; nil if there is a report.
func (m *usageMeter) ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.reportableErr != nil:
		return m.reportableErr
	case m.readErr != nil:
		return m.readErr
	case m.reportTime.IsZero():
		return errors.New("the agent has not measured the CPU and memory usage for long enough yet")
	}
	return nil
}

// nextReport returns a channel that is closed when the next report is made.
func (m *usageMeter) nextReport() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Usage reads how much CPU time the running containers have used. It leaves out containers that end meanwhile, and
// containers whose cgroup is unknown.
func (s source) Usage() api.Usage {
	out := api.Usage{At: time.Now()}
	for _, g := range nodeview.ContainerCgroups(s.a.conductor) {
		dir, err := cgroup.Path(g.Parent, g.Path)
		if err != nil {
			continue
		}
		u, err := s.a.node.tree.CPUUse(dir)
		if err != nil {
			continue
		}
		out.Containers = append(out.Containers, api.ContainerUse{
			ID: g.ID, Pod: g.Pod, Container: g.Container, Pool: g.Pool,
			Used: u.CPUTime, Periods: u.Periods, Throttled: u.ThrottledPeriods, Pressure: u.Pressure,
		})
	}
	return out
}

// readUsage reads the usage of the node and its pods. It leaves out pods that end meanwhile.
func (a *Agent) readUsage() (nodemetric.Reading, error) {
	r := nodemetric.Reading{At: time.Now(), Pods: map[nodemetric.Pod]nodemetric.Counter{}}
	var err error
	if r.Node.CPU, r.Node.Bytes, err = usage.ReadNode(os.DirFS(cmp.Or(a.opt.Proc, "/proc"))); err != nil {
		return r, err
	}
	for _, p := range nodeview.PodCgroups(a.conductor) {
		dir, err := cgroup.PodPath(p.CgroupParent)
		if err != nil {
			continue
		}
		if cpu, bytes, err := a.node.tree.Usage(dir); err == nil {
			pod := nodemetric.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, QoS: p.QoS, Priority: p.Priority}
			r.Pods[pod] = nodemetric.Counter{CPU: cpu, Bytes: bytes}
		}
	}
	return r, nil
}
