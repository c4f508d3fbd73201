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
	// askedResources are the resources that the manager asked plugins to allocate for the pod. The manager must ask
	// these plugins to release the pod.
	askedResources map[string]bool
	// answers has the allocations, by container name and by the resource of the plugin that made them.
	answers map[string]map[string]storedAllocation
	// reports are the last reports of plugins about these allocations, by container name and by the plugin's resource.
	reports map[string]map[string]containerReport
	// noContainerYet means that no container of the pod was created yet.
	noContainerYet bool
	// migrated means that the allocations are from an earlier manager's checkpoint. The checkpoint lists each resource
	// separately, although one plugin can allocate several resources in one answer.
	migrated bool
}

// storedAllocation is one allocation: the plugin's last answer, and the request, so that the manager can repeat the
// request.
type storedAllocation struct {
	request *api.ResourceRequest
	answer  *api.ResourceAllocation
	// adopted means that an earlier agent or manager sent the request. The field request then has only the pod's UID,
	// and the names of the container and the resource.
	adopted bool
	// beforeCreation means that the request was sent before the container was created.
	beforeCreation bool
	// podAmount is the amount that the whole pod requests, if the answer is for all of its containers; else 0.
	podAmount float64
	// encoded has the encoded messages; nil until the first save.
	encoded *encodedAllocation
}

// encodedAllocation has the encoded messages of an allocation. The manager encodes the messages only once. Each save
// needs the messages of all pods, and holds the lock for which the creation of a container waits.
type encodedAllocation struct{ request, answer []byte }

func newPod() *pod {
	return &pod{askedResources: map[string]bool{}, answers: map[string]map[string]storedAllocation{}}
}

// noteAsked stores that the manager will ask a plugin to allocate a resource for a pod.
func (m *Manager) noteAsked(req *api.ResourceRequest, beforeCreation bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		p = newPod()
		p.noContainerYet = beforeCreation
		m.pods[req.GetPodUid()] = p
	}
	p.noContainerYet = p.noContainerYet && beforeCreation
	p.askedResources[req.GetResourceName()] = true
}

// storeAnswer stores the answer to a request.
func (m *Manager) storeAnswer(req *api.ResourceRequest, answer *api.ResourceAllocation, podAmount float64, beforeCreation bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil || answer == nil {
		return // the pod has ended, or the answer is empty
	}
	allocations := p.answers[req.GetContainerName()]
	if allocations == nil {
		allocations = map[string]storedAllocation{}
		p.answers[req.GetContainerName()] = allocations
	}
	allocations[req.GetResourceName()] = storedAllocation{request: req, answer: answer, beforeCreation: beforeCreation, podAmount: podAmount}
	m.wake()
}

// lastAnswer returns a plugin's last allocation for the container and resource of a request; nil if there is none.
func (m *Manager) lastAnswer(req *api.ResourceRequest) *api.ResourceAllocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[req.GetPodUid()]; p != nil {
		return p.answers[req.GetContainerName()][req.GetResourceName()].answer
	}
	return nil
}

// hasAllocation reports whether a container has a stored allocation of a plugin.
func (m *Manager) hasAllocation(uid, container, resource string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	return p != nil && p.answers[container][resource].answer != nil
}

// allocatedHints returns the hints in the stored allocation for a container, so that a container that is created again
// keeps its NUMA nodes. The bool is false if there is no such allocation, or if it is smaller than the request.
func (m *Manager) allocatedHints(it pluginRequest) (lifecycle.ResourceHints, bool) {
	req, name := it.request, it.request.GetResourceName()
	answer, needed := m.lastAnswer(req), req.GetResourceRequests()[name]
	if it.podAmount > 0 {
		if answered := m.podAnswer(req); answered != nil {
			answer, needed = answered.answer, it.podAmount
		}
	}
	info := answer.GetResourceAllocation()[name]
	hints := info.GetResourceHints().GetHints()
	if len(hints) == 0 || len(hints) > maxHints || math.Ceil(info.GetAllocatedQuantity()) < math.Ceil(needed) {
		return lifecycle.ResourceHints{}, false
	}
	return lifecycle.ResourceHints{Resource: name, Hints: convertHints(hints)}, true
}

// savedState is the JSON form of a manager's state.
type savedState struct {
	Version  int                 `json:"version"`
	Plugins  []savedPlugin       `json:"plugins,omitempty"`
	Pods     map[string]savedPod `json:"pods,omitempty"`
	Removals map[string][]string `json:"removals,omitempty"` // pod UIDs by resource
}

// savedPlugin is the JSON form of a plugin's registration.
type savedPlugin struct {
	Resource string `json:"resource"`
	Socket   string `json:"socket"`
	Watched  bool   `json:"watched,omitempty"` // the socket is in a watched directory
	// PreStart, Aligned and Reconcile are the plugin's options preStartRequired, topologyAligned and needReconcile.
	PreStart  bool `json:"preStart,omitempty"`
	Aligned   bool `json:"aligned,omitempty"`
	Reconcile bool `json:"reconcile,omitempty"`
	// Associated are the resource names of the plugin's associated devices.
	Associated []string `json:"associated,omitempty"`
}

// savedPod is the JSON form of a pod. Asked has the resources that plugins were asked to allocate.
type savedPod struct {
	Asked    []string `json:"asked"`
	Migrated bool     `json:"migrated,omitempty"` // the allocations are from an earlier manager's checkpoint
	// Answers has the allocations, by container name and by the resource of the plugin that made them.
	Answers map[string]map[string]savedAnswer `json:"answers,omitempty"`
}

// savedAnswer is the JSON form of a storedAllocation. Ahead means that the request was sent before the container was
// created.
type savedAnswer struct {
	Request []byte `json:"request"`
	Answer  []byte `json:"answer"`
	Adopted bool   `json:"adopted,omitempty"` // an earlier agent or manager made the request
	Ahead   bool   `json:"ahead,omitempty"`
	// Pod is the amount that the whole pod requests, if the answer is for all containers of the pod; else 0.
	Pod float64 `json:"pod,omitempty"`
}

// savedVersion is the version of the format of savedState.
const savedVersion = 1

// saveState saves the state by Options.SaveState.
func (m *Manager) saveState() {
	if m.opts.SaveState == nil {
		return
	}
	data, err := json.Marshal(m.stateToSave())
	if err == nil {
		err = m.opts.SaveState(data)
	}
	if err != nil {
		m.opts.Log.Warn("the agent could not save the allocations of resource plugins; it tries again at the next change", logkey.Err, err)
	}
}

// stateToSave returns the current state in the form that is saved.
func (m *Manager) stateToSave() savedState {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := savedState{Version: savedVersion, Pods: map[string]savedPod{}, Removals: map[string][]string{}}
	encode := proto.MarshalOptions{Deterministic: true}
	for _, name := range sortedKeys(m.plugins) {
		p := m.plugins[name]
		out.Plugins = append(out.Plugins, savedPlugin{p.resource, p.socket, p.foundInDirectory, p.options.preStartRequired, p.options.topologyAligned, p.options.needReconcile, p.options.associatedDevices})
	}
	for uid, p := range m.pods {
		s := savedPod{Asked: sortedKeys(p.askedResources), Migrated: p.migrated, Answers: map[string]map[string]savedAnswer{}}
		for ctr, allocations := range p.answers {
			s.Answers[ctr] = map[string]savedAnswer{}
			for resource, a := range allocations {
				if a.encoded == nil {
					req, err := encode.Marshal(a.request)
					text, err2 := encode.Marshal(a.answer)
					if err != nil || err2 != nil {
						continue // never happens: a decoded message of proto3 can always be encoded
					}
					a.encoded = &encodedAllocation{req, text}
					allocations[resource] = a
				}
				s.Answers[ctr][resource] = savedAnswer{a.encoded.request, a.encoded.answer, a.adopted, a.beforeCreation, a.podAmount}
			}
		}
		out.Pods[uid] = s
	}
	for resource := range m.removals {
		out.Removals[resource] = m.pendingReleases(resource)
	}
	return out
}

// pendingReleases returns the UIDs of the pods that a plugin must still release, including releases in progress. The
// caller holds mu.
func (m *Manager) pendingReleases(resource string) []string {
	uids := sortedKeys(m.removals[resource])
	for r := range m.removalsInProgress {
		if r.resource == resource && !m.removals[resource][r.uid] {
			uids = append(uids, r.uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// restoreState loads a saved state. Without a saved state, it reads the checkpoint of an earlier manager. If the saved
// state is invalid, restoreState logs a warning and loads nothing. The manager later asks plugins for their
// allocations.
func (m *Manager) restoreState(data []byte) {
	if len(data) == 0 {
		m.readOldCheckpoint()
		return
	}
	var s savedState
	err := json.Unmarshal(data, &s)
	if err == nil && s.Version != savedVersion {
		err = fmt.Errorf("version %d is unknown", s.Version)
	}
	pods := map[string]*pod{}
	for uid, p := range s.Pods {
		if pods[uid], err = restorePod(p, err); err != nil {
			break
		}
	}
	if err != nil {
		m.opts.Log.Warn("the agent cannot read the saved state of resource plugins; plugins must register again", logkey.Err, err)
		return
	}
	m.pods = pods
	for _, p := range s.Plugins[:min(len(s.Plugins), maxPlugins)] {
		if isResourceName(p.Resource) && len(p.Socket) <= maxSocketPath {
			r := registration{resource: p.Resource, socket: p.Socket, foundInDirectory: p.Watched, version: version, hasOptions: true}
			r.options = options{preStartRequired: p.PreStart, topologyAligned: p.Aligned, needReconcile: p.Reconcile, associatedDevices: p.Associated[:min(len(p.Associated), maxPlugins)]}
			m.plugins[p.Resource] = newPlugin(r, &m.opts)
		}
	}
	for resource, uids := range s.Removals {
		m.removals[resource] = map[string]bool{}
		for _, uid := range uids {
			m.removals[resource][uid] = true
		}
	}
}

// restorePod converts a saved pod. The parameter err is an earlier error in the saved state. If err is not nil,
// restorePod decodes no messages and returns err.
func restorePod(p savedPod, err error) (*pod, error) {
	out := newPod()
	out.migrated = p.Migrated
	for _, name := range p.Asked {
		out.askedResources[name] = true
	}
	for ctr, allocations := range p.Answers {
		out.answers[ctr] = map[string]storedAllocation{}
		for resource, a := range allocations {
			one := storedAllocation{request: &api.ResourceRequest{}, answer: &api.ResourceAllocation{}, adopted: a.Adopted, beforeCreation: a.Ahead, podAmount: a.Pod}
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

// State is the state of one plugin, for users.
type State struct {
	Resource, Socket, Err string
	// Answering means that the plugin answered its last call, and that its socket exists.
	Answering bool
	// Aligned means that the manager asks the plugin for hints. Reconciled means that the manager regularly asks for
	// the plugin's allocations. PreStart means that the manager calls the plugin before a container starts.
	Aligned, Reconciled, PreStart bool
	Calls, Failed                 uint64 // the number of calls, and of failed calls
	// Replaced counts earlier registrations for the resource. Pods is the number of pods for which the manager asked
	// the plugin to allocate. Removals is the number of pods that the plugin must still release.
	Replaced, Pods, Removals int
}

// States returns the states of plugins, the last refused registrations, and the reason why the manager cannot serve its
// socket ("" if it can).
func (m *Manager) States() (plugins []State, refused []RefusedRegistration, err string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range sortedKeys(m.plugins) {
		p := m.plugins[name]
		s := State{
			Resource: p.resource, Socket: p.socket, Aligned: p.options.topologyAligned, Reconciled: p.options.needReconcile, PreStart: p.options.preStartRequired,
			Replaced: p.replaced, Removals: len(m.pendingReleases(name)),
		}
		for _, pod := range m.pods {
			if pod.askedResources[name] {
				s.Pods++
			}
		}
		p.mu.Lock()
		s.Err, s.Calls, s.Failed, s.Answering = p.lastErr, p.calls, p.failed, !p.socketRemoved && !p.breaker.Failing() && p.calls > 0
		p.mu.Unlock()
		plugins = append(plugins, s)
	}
	return plugins, slices.Clone(m.refusals), m.err
}

// podUIDs returns the UIDs of the pods with allocations, sorted.
func (m *Manager) podUIDs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.pods))
}
