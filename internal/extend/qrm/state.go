package qrm

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// pod has the allocations of plugins for one pod.
type pod struct {
	// asked are the resources whose plugins were asked to allocate. These plugins must release the pod.
	asked map[string]bool
	// answers has the answers by container and plugin resource.
	answers map[string]map[string]stored
	// ahead: no container of it was created yet.
	ahead bool
	// migrated: an earlier manager's checkpoint has it. Its resources may be those that a plugin of
	// another name gave beside its own.
	migrated bool
}

// stored is one allocation: the request, so that it can be repeated, and the last answer.
type stored struct {
	request *api.ResourceRequest
	answer  *api.ResourceAllocation
	// adopted means that an earlier agent asked, so the request has only names.
	adopted bool
	// ahead: it was asked before the container was created.
	ahead bool
	// ofPod is what the whole pod requests, if the answer is for all of its containers; else 0.
	ofPod float64
}

func newPod() *pod { return &pod{asked: map[string]bool{}, answers: map[string]map[string]stored{}} }

// begun notes that a plugin is being asked to allocate.
func (m *Manager) begun(req *api.ResourceRequest, ahead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		p = newPod()
		p.ahead = ahead
		m.pods[req.GetPodUid()] = p
	}
	p.ahead = p.ahead && ahead
	p.asked[req.GetResourceName()] = true
}

// allocated stores an answer.
func (m *Manager) allocated(req *api.ResourceRequest, answer *api.ResourceAllocation, ofPod float64, ahead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil || answer == nil {
		return // the pod ended meanwhile
	}
	of := p.answers[req.GetContainerName()]
	if of == nil {
		of = map[string]stored{}
		p.answers[req.GetContainerName()] = of
	}
	of[req.GetResourceName()] = stored{request: req, answer: answer, ahead: ahead, ofPod: ofPod}
	m.wake()
}

// lastAnswer returns the last answer for a container; nil if there is none.
func (m *Manager) lastAnswer(req *api.ResourceRequest) *api.ResourceAllocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[req.GetPodUid()]; p != nil {
		return p.answers[req.GetContainerName()][req.GetResourceName()].answer
	}
	return nil
}

// has reports whether a plugin has allocated something for a container.
func (m *Manager) has(uid, container, resource string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	return p != nil && p.answers[container][resource].answer != nil
}

// allocatedHints returns the hints of a container's existing allocation, so that a container that is
// created again keeps its NUMA nodes.
func (m *Manager) allocatedHints(it item) (lifecycle.ResourceHints, bool) {
	req, name := it.request, it.request.GetResourceName()
	answer, needed := m.lastAnswer(req), req.GetResourceRequests()[name]
	if it.ofPod > 0 {
		if of := m.podAnswer(req); of != nil {
			answer, needed = of.answer, it.ofPod
		}
	}
	info := answer.GetResourceAllocation()[name]
	hints := info.GetResourceHints().GetHints()
	if len(hints) == 0 || len(hints) > maxHints || math.Ceil(info.GetAllocatedQuantity()) < math.Ceil(needed) {
		return lifecycle.ResourceHints{}, false
	}
	return lifecycle.ResourceHints{Resource: name, Hints: converted(hints)}, true
}

// saved is the JSON form of a manager's state.
type saved struct {
	Version  int                 `json:"version"`
	Plugins  []savedPlugin       `json:"plugins,omitempty"`
	Pods     map[string]savedPod `json:"pods,omitempty"`
	Removals map[string][]string `json:"removals,omitempty"` // pod UIDs by resource
}

type savedPlugin struct {
	Resource  string `json:"resource"`
	Socket    string `json:"socket"`
	Watched   bool   `json:"watched,omitempty"`
	PreStart  bool   `json:"preStart,omitempty"`
	Aligned   bool   `json:"aligned,omitempty"`
	Reconcile bool   `json:"reconcile,omitempty"`
}

type savedPod struct {
	Asked    []string `json:"asked"`
	Migrated bool     `json:"migrated,omitempty"`
	// Answers has requests and answers as messages of the protocol.
	Answers map[string]map[string]savedAnswer `json:"answers,omitempty"`
}

type savedAnswer struct {
	Request []byte `json:"request"`
	Answer  []byte `json:"answer"`
	Adopted bool   `json:"adopted,omitempty"`
	Ahead   bool   `json:"ahead,omitempty"`
	// Pod is what the whole pod requests, if the answer is for all of its containers.
	Pod float64 `json:"pod,omitempty"`
}

const savedVersion = 1

// save saves the state.
func (m *Manager) save() {
	if m.o.Save == nil {
		return
	}
	data, err := json.Marshal(m.snapshot())
	if err == nil {
		err = m.o.Save(data)
	}
	if err != nil {
		m.o.Log.Warn("the agent could not save the allocations of resource plugins; it tries again at the next change", logkey.Err, err)
	}
}

func (m *Manager) snapshot() saved {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := saved{Version: savedVersion, Pods: map[string]savedPod{}, Removals: map[string][]string{}}
	encode := proto.MarshalOptions{Deterministic: true}
	for _, name := range sortedKeys(m.plugins) {
		p := m.plugins[name]
		out.Plugins = append(out.Plugins, savedPlugin{p.resource, p.socket, p.watched, p.options.preStart, p.options.aligned, p.options.reconcile})
	}
	for uid, p := range m.pods {
		s := savedPod{Asked: sortedKeys(p.asked), Migrated: p.migrated, Answers: map[string]map[string]savedAnswer{}}
		for ctr, of := range p.answers {
			s.Answers[ctr] = map[string]savedAnswer{}
			for resource, a := range of {
				req, err := encode.Marshal(a.request)
				text, err2 := encode.Marshal(a.answer)
				if err == nil && err2 == nil { // a message of proto3 that was decoded can be encoded
					s.Answers[ctr][resource] = savedAnswer{req, text, a.adopted, a.ahead, a.ofPod}
				}
			}
		}
		out.Pods[uid] = s
	}
	for resource := range m.removals {
		out.Removals[resource] = m.unreleased(resource)
	}
	return out
}

// unreleased returns the pods that a plugin must still release, including releases in progress. The caller
// holds mu.
func (m *Manager) unreleased(resource string) []string {
	uids := sortedKeys(m.removals[resource])
	for r := range m.removing {
		if r.resource == resource && !m.removals[resource][r.uid] {
			uids = append(uids, r.uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// restore loads a saved state. If the state cannot be read, restore reports that and loads nothing: plugins
// still know their allocations.
func (m *Manager) restore(data []byte) {
	if len(data) == 0 {
		m.migrate()
		return
	}
	var s saved
	err := json.Unmarshal(data, &s)
	if err == nil && s.Version != savedVersion {
		err = fmt.Errorf("version %d is unknown", s.Version)
	}
	pods := map[string]*pod{}
	for uid, p := range s.Pods {
		if pods[uid], err = restored(p, err); err != nil {
			break
		}
	}
	if err != nil {
		m.o.Log.Warn("the agent cannot read the saved state of resource plugins; plugins must register again", logkey.Err, err)
		return
	}
	m.pods = pods
	for _, p := range s.Plugins[:min(len(s.Plugins), maxPlugins)] {
		if isName(p.Resource) && len(p.Socket) <= maxSocket {
			r := registration{resource: p.Resource, socket: p.Socket, watched: p.Watched, version: version, known: true}
			r.options = options{preStart: p.PreStart, aligned: p.Aligned, reconcile: p.Reconcile}
			m.plugins[p.Resource] = newPlugin(r, &m.o)
		}
	}
	for resource, uids := range s.Removals {
		m.removals[resource] = map[string]bool{}
		for _, uid := range uids {
			m.removals[resource][uid] = true
		}
	}
}

func restored(p savedPod, err error) (*pod, error) {
	out := newPod()
	out.migrated = p.Migrated
	for _, name := range p.Asked {
		out.asked[name] = true
	}
	for ctr, of := range p.Answers {
		out.answers[ctr] = map[string]stored{}
		for resource, a := range of {
			one := stored{&api.ResourceRequest{}, &api.ResourceAllocation{}, a.Adopted, a.Ahead, a.Pod}
			if err == nil {
				err = proto.Unmarshal(a.Request, one.request)
			}
			if err == nil {
				err = proto.Unmarshal(a.Answer, one.answer)
			}
			out.answers[ctr][resource] = one
		}
	}
	return out, err
}

// State is one plugin, for status.
type State struct {
	Resource, Socket, Err string
	// Answering means that the plugin answered its last call, and that its socket exists.
	Answering bool
	// Aligned, Reconciled and PreStart are its options.
	Aligned, Reconciled, PreStart bool
	Calls, Failed                 uint64
	// Replaced counts earlier registrations of the resource. Pods is the number of pods with an allocation;
	// Removals is the number of pods that the plugin must still release.
	Replaced, Pods, Removals int
}

// States returns the plugins, the last refused registrations, and why the socket cannot be served.
func (m *Manager) States() (plugins []State, refused []Refused, err string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range sortedKeys(m.plugins) {
		p := m.plugins[name]
		s := State{
			Resource: p.resource, Socket: p.socket, Aligned: p.options.aligned, Reconciled: p.options.reconcile, PreStart: p.options.preStart,
			Replaced: p.replaced, Removals: len(m.unreleased(name)),
		}
		for _, of := range m.pods {
			if of.asked[name] {
				s.Pods++
			}
		}
		p.mu.Lock()
		s.Err, s.Calls, s.Failed, s.Answering = p.lastErr, p.calls, p.failed, !p.gone && !p.breaker.Failing() && p.calls > 0
		p.mu.Unlock()
		plugins = append(plugins, s)
	}
	return plugins, slices.Clone(m.refusals), m.err
}

// uids returns the pods with allocations, sorted.
func (m *Manager) uids() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.pods))
}
