package nrihost

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Recorder counts requests to plugins, for metrics. Its method must not block. The host passes only a limited number of
// different plugin names to it.
type Recorder interface {
	// CountRequest counts one request to a plugin. The operation is the name of the request's NRI event.
	CountRequest(plugin, operation string, failed bool, duration time.Duration)
}

type noRecorder struct{}

func (noRecorder) CountRequest(string, string, bool, time.Duration) {}

// maxPlugins limits the number of plugins that are counted under their own names. All other plugins are counted under
// the name "other".
const maxPlugins = 64

// Plugin is the state of one plugin, for users.
type Plugin struct {
	Name        string        // index and name, such as "10-cpus"
	Connected   bool          // the plugin is connected to the socket; always false for pre-installed plugins
	Calls       uint64        // the number of requests to the plugin
	Failed      uint64        // the number of requests that failed
	Err         string        // the error of the last failed request
	TotalTime   time.Duration // the sum of the durations of all requests
	LongestTime time.Duration // the duration of the longest request
	// FieldsSet lists the fields of containers that the plugin has set or removed, sorted, such as
	// "linux.resources.cpu.shares".
	FieldsSet []string

	lastTime time.Duration // the duration of the last request
}

// plugins has the states of all plugins. It implements the interface Metrics of the NRI library.
type plugins struct {
	recorder Recorder

	mu              sync.Mutex         // guards all below
	byName          map[string]*Plugin // by Plugin.Name
	failedPlugin    string             // the last plugin whose request failed since the last call of resetFailedPlugin
	rejectedClients uint64             // the number of clients that the listener rejected
}

var _ adaptation.Metrics = (*plugins)(nil)

func newPlugins(r Recorder) *plugins { return &plugins{recorder: r, byName: map[string]*Plugin{}} }

// pluginLocked returns the state of a plugin. If there is no state, it makes a new one. The caller holds mu.
func (p *plugins) pluginLocked(name string) *Plugin {
	if one := p.byName[name]; one != nil {
		return one
	}
	if len(p.byName) >= maxPlugins {
		for known, one := range p.byName { // replace a plugin that is not connected
			if !one.Connected {
				delete(p.byName, known)
				break
			}
		}
	}
	if len(p.byName) >= maxPlugins {
		name = "other"
	}
	one := &Plugin{Name: name}
	p.byName[name] = one
	return one
}

// connect marks a plugin as connected. The returned function disconnect marks the plugin as disconnected. The result ok
// is false if a plugin with the same name is already connected.
func (p *plugins) connect(name string) (disconnect func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.pluginLocked(name)
	if one.Connected {
		p.rejectedClients++
		return nil, false
	}
	one.Connected = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		one.Connected = false
	}, true
}

// countNonPlugin counts a rejected client that did not register as a plugin.
func (p *plugins) countNonPlugin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rejectedClients++
}

// RecordPluginInvocation counts a request to a plugin.
func (p *plugins) RecordPluginInvocation(name, operation string, err error) {
	p.mu.Lock()
	one := p.pluginLocked(name)
	one.Calls++
	if err != nil {
		one.Failed++
		one.Err = err.Error()
		p.failedPlugin = name
	}
	shown, duration := one.Name, one.lastTime
	p.mu.Unlock()
	p.recorder.CountRequest(shown, operation, err != nil, duration)
}

// RecordPluginLatency adds the duration of a request to the plugin's state. For each request, the NRI library calls it
// before RecordPluginInvocation.
func (p *plugins) RecordPluginLatency(name, _ string, duration time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.pluginLocked(name)
	one.lastTime = duration
	one.TotalTime += duration
	one.LongestTime = max(one.LongestTime, duration)
}

// RecordPluginAdjustments adds the fields that a plugin sets or removes to the plugin's FieldsSet.
func (p *plugins) RecordPluginAdjustments(name, _ string, a *adaptation.ContainerAdjustment, _, _ int) {
	set := adjustedFields("", a.ProtoReflect(), nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.pluginLocked(name)
	for _, field := range set {
		if at, has := slices.BinarySearch(one.FieldsSet, field); !has {
			one.FieldsSet = slices.Insert(one.FieldsSet, at, field)
		}
	}
}

// adjustedFields appends to names the full names of the fields that are set in the message m. A full name begins with
// prefix. The NRI protocol defines all names, so the number of names is limited.
func adjustedFields(prefix string, m protoreflect.Message, names []string) []string {
	if !m.IsValid() {
		return names
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := prefix + string(f.Name())
		switch {
		case f.Message() == nil || f.IsList() || f.IsMap() || strings.HasPrefix(string(f.Message().Name()), "Optional"):
			names = append(names, name)
		default:
			names = adjustedFields(name+".", v.Message(), names)
		}
		return true
	})
	return names
}

// UpdatePluginCount does nothing, because connect tracks the connected plugins.
func (p *plugins) UpdatePluginCount(int) {}

// resetFailedPlugin forgets the last plugin whose request failed.
func (p *plugins) resetFailedPlugin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failedPlugin = ""
}

// lastFailedPlugin returns the last plugin whose request failed since resetFailedPlugin, or "".
func (p *plugins) lastFailedPlugin() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failedPlugin
}

// pluginStates returns the plugins that are or were connected, sorted by name, and the number of rejected clients.
func (p *plugins) pluginStates() (all []Plugin, rejected uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.byName {
		copied := *one
		copied.FieldsSet = slices.Clone(one.FieldsSet)
		all = append(all, copied)
	}
	slices.SortFunc(all, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
	return all, p.rejectedClients
}

// hasOwnPlugins reports whether the host has plugins that do not connect to the host's socket: pre-installed plugins,
// or the NRI library's validator. It also returns true if the directory of pre-installed plugins cannot be read.
func (o *Options) hasOwnPlugins() bool {
	if o.Validator != nil && o.Validator.Enable {
		return true
	}
	if o.PluginPath == "" {
		return false
	}
	all, err := os.ReadDir(o.PluginPath)
	return len(all) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// hasNoPlugins reports whether there are no pre-installed plugins, no validator, and no clients of the socket for
// plugins. So no plugin gets NRI events now. A plugin that connects later gets no events before NRI's Synchronize
// request.
func (h *Host) hasNoPlugins() bool { return !h.hasOwnPlugins && h.pluginListener.isEmpty() }

// State is the state of a host, for users.
type State struct {
	Socket        string // the path of the socket for plugins
	CreationOrder string // whether the host asks plugins before or after a creation; empty while the host does not serve plugins
	Err           string // the reason why the host does not serve plugins
	Plugins       []Plugin
	// Rejected counts the clients that the host rejected. These are clients that did not register as plugins, and
	// plugins whose name another connected plugin had already.
	Rejected uint64
}

// State returns the state of the host and its plugins.
func (h *Host) State() State {
	s := State{Socket: h.opts.Socket}
	s.Plugins, s.Rejected = h.plugins.pluginStates()
	if h.serving.Load() {
		s.CreationOrder = h.creationOrder()
		return s
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.notServingErr != nil {
		s.Err = h.notServingErr.Error()
	}
	return s
}
