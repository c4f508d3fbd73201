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

// usageEvery is how often the agent reads usage. It reads two files for each pod.
const usageEvery = 15 * time.Second

// usageMeter measures the usage of the node and its pods. It implements kube.Service.
type usageMeter struct {
	// blocked returns why the pods are unknown, so that usage cannot be measured; nil if they are known.
	blocked func() error
	read    func() (nodemetric.Reading, error)
	every   time.Duration
	note    func(error) // the error of a reading

	mu      sync.Mutex // guards all below
	history nodemetric.History
	policy  nodemetric.Policy
	status  map[string]any // the last report
	made    time.Time      // when the report was made; zero if there is none
	failed  error          // the error of the last reading
	held    error          // blocked returned a reason
	changed chan struct{}  // closed with the next report
}

func (a *Agent) newUsageMeter() *usageMeter {
	return &usageMeter{
		blocked: a.reportable, read: a.readUsage, every: usageEvery, policy: nodemetric.Policy{}.OrUsual(), changed: make(chan struct{}),
		note: func(err error) { a.log.Warn("the agent cannot measure the node's usage", logkey.Err, err) },
	}
}

// nodeMetric makes the node's NodeMetric.
func (m *usageMeter) nodeMetric() publish.Report {
	return publish.Report{
		Kind:     "NodeMetric",
		Resource: schema.GroupVersionResource{Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodemetrics"},
		Key:      "status.nodeMetric", Status: true, Ready: m.ready, Changed: m.next,
		Make: func() (map[string]string, map[string]any) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return nil, m.status
		},
		Read: func(o *unstructured.Unstructured) {
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
		if m.open() {
			m.take(m.read())
		}
		if !sleep.For(ctx, m.every) {
			return
		}
	}
}

// open reports whether the pods are known. If they are not, it drops earlier measurements, because they may
// be of other pods.
func (m *usageMeter) open() bool {
	err := m.blocked()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held = err; err != nil {
		m.history, m.made = nodemetric.History{}, time.Time{}
	}
	return err == nil
}

// take stores a reading, and makes a report if one is due.
func (m *usageMeter) take(r nodemetric.Reading, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.failed == nil {
			m.note(err)
		}
		m.failed = err
		return
	}
	m.failed = nil
	m.history.Add(r, m.policy.Average)
	if !m.history.Enough() || !m.made.IsZero() && r.At.Sub(m.made) < m.policy.Interval-m.every/2 {
		return
	}
	m.status, m.made = m.history.Status(m.policy, kube.Stamp(r.At)), r.At
	close(m.changed)
	m.changed = make(chan struct{})
}

// ready returns why there is nothing to report; nil if there is.
func (m *usageMeter) ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.held != nil:
		return m.held
	case m.failed != nil:
		return m.failed
	case m.made.IsZero():
		return errors.New("the usage has not been measured for long enough yet")
	}
	return nil
}

// next returns a channel that is closed when the next report is made.
func (m *usageMeter) next() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Usage reads how much CPU time the running containers have used. It leaves out containers that end meanwhile, and those
// whose cgroup's path it does not know.
func (s source) Usage() api.Usage {
	out := api.Usage{At: time.Now()}
	for _, g := range nodeview.ContainerGroups(s.a.conductor) {
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
			Used: u.Used, Periods: u.Periods, Throttled: u.Throttled, Pressure: u.Pressure,
		})
	}
	return out
}

// readUsage reads the usage of the node and its pods. It leaves out pods that end meanwhile.
func (a *Agent) readUsage() (nodemetric.Reading, error) {
	r := nodemetric.Reading{At: time.Now(), Pods: map[nodemetric.Pod]nodemetric.Counter{}}
	var err error
	if r.Node.CPU, r.Node.Bytes, err = usage.Node(os.DirFS(cmp.Or(a.opt.Proc, "/proc"))); err != nil {
		return r, err
	}
	for _, p := range nodeview.PodGroups(a.conductor) {
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
