package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/configmaps"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/kube/layers"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// clusterConfigName is the file in paths.state that stores the layers from the API server that are in
// force.
const clusterConfigName = "clusterconfig.json"

// startName is the name of the source of keys if the agent has no configuration file.
const startName = "start"

// merged is the configuration in force with its layers: the node's file, then the layers from the API
// server, then the flags. Later layers have priority.
type merged struct {
	log      *slog.Logger
	override func(*config.Config)
	apply    func(config.Config) error // applies a change of the file
	// applyAbove applies a change of layers above the file. It keeps the reason why the file was refused,
	// if it was.
	applyAbove func(config.Config) error
	save       func([]byte) error // nil if the layers are not saved
	// report is called with the reason why the API server's configuration is not in force, and with nil
	// when it is in force again.
	report func(error)

	mu      sync.Mutex // held while the agent makes and applies a configuration
	read    config.Layer
	file    config.Layer
	cluster []config.Layer // in force
	newest  []config.Layer // as the API server has them; differs from cluster if they were refused
	sources config.Sources
	warned  map[config.Problem]bool // keys that layers set by their former names
	state   api.ClusterConfig
}

// newMerged returns the merged configuration of an agent that starts.
func newMerged(o Options) *merged {
	m := &merged{log: o.Log, override: o.Override, report: func(error) {}}
	m.file = config.Layer{Name: config.SourceDefault, Data: []byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n")}
	if c, _, err := m.merge(nil); err != nil || !reflect.DeepEqual(c, o.Config) {
		m.file = config.Layer{Name: startName, Data: config.Print(o.Config)} // the file's text, for a program that has no file
	}
	if o.ConfigFile != "" {
		data, err := config.Read(o.ConfigFile)
		if _, bad := config.Parse(o.ConfigFile, data); err == nil && bad == nil {
			m.file = config.Layer{Name: o.ConfigFile, Data: data}
		}
	}
	_, m.sources, _ = m.merge(nil) // the file was read before, so it is valid
	m.read = m.file
	m.warnRenamed(nil)
	return m
}

// merge makes a configuration from the file, the layers above it, and the flags.
func (m *merged) merge(above []config.Layer) (config.Config, config.Sources, error) {
	c, from, err := config.Merge(append([]config.Layer{m.file}, above...)...)
	if err != nil || m.override == nil {
		return c, from, err
	}
	plain := c
	m.override(&c)
	if problems := config.Validate(c); problems != nil {
		return c, nil, fmt.Errorf("with the flags: %w", &config.Error{Problems: problems})
	}
	from.Changed(plain, c, config.SourceFlag)
	return c, from, nil
}

// parse reads the file alone, and stores its text for fromFile.
func (m *merged) parse(name string, data []byte) (config.Config, error) {
	c, err := config.Parse(name, data)
	if err == nil {
		m.mu.Lock()
		m.read = config.Layer{Name: name, Data: data}
		m.mu.Unlock()
	}
	return c, err
}

// fromFile merges the file that was read last with the API server's layers. Layers that were refused
// together with the previous file are tried again.
func (m *merged) fromFile(config.Config) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.file
	m.file = m.read
	err := m.put(m.newest, m.apply)
	if err == nil {
		m.accept(m.newest)
		return nil
	}
	if !layers.Same(m.newest, m.cluster) && m.put(m.cluster, m.apply) == nil {
		return nil
	}
	m.file = before
	return err
}

// take applies the API server's configuration, or reports why that is impossible.
func (m *merged) take(s layers.Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.state.From != api.FromServer
	m.state.From = api.FromServer
	if s.Err != nil {
		m.refuse(s.Err)
		return
	}
	m.newest, m.state.NotUnderstood = s.Layers, s.NotUnderstood
	same := layers.Same(s.Layers, m.cluster)
	if !same {
		if err := m.put(s.Layers, m.applyAbove); err != nil {
			m.refuse(err)
			return
		}
	}
	m.accept(s.Layers)
	if !same || first {
		m.keep()
	}
}

// put merges layers with the file and applies the result. The caller holds mu.
func (m *merged) put(above []config.Layer, apply func(config.Config) error) error {
	c, from, err := m.merge(above)
	if err != nil {
		return err
	}
	if err := apply(c); err != nil {
		return err
	}
	m.sources = from
	m.warnRenamed(above)
	return nil
}

// warnRenamed logs each key once that a layer in force sets by its former name.
func (m *merged) warnRenamed(above []config.Layer) {
	for _, l := range append([]config.Layer{m.file}, above...) {
		for _, p := range config.Renamed(l.Name, l.Data) {
			if m.warned[p] {
				continue
			}
			if m.warned == nil {
				m.warned = map[config.Problem]bool{}
			}
			m.warned[p] = true
			m.log.Warn("the configuration sets a key by a former name, which still works, or a former key without an equivalent, which has no effect", logkey.Key, p.String())
		}
	}
}

// refuse stores and reports why the newest layers are not in force. The caller holds mu.
func (m *merged) refuse(err error) {
	m.state.RefusedTotal++
	if m.state.Refused == err.Error() {
		return
	}
	m.state.Refused = err.Error()
	m.log.Error("the API server's configuration for this node is refused; the last good one stays in force", logkey.Err, err)
	m.report(err)
}

// accept stores that layers are in force. The caller holds mu.
func (m *merged) accept(above []config.Layer) {
	m.cluster, m.newest = above, above
	m.state.Layers = nil
	for _, l := range above {
		m.state.Layers = append(m.state.Layers, api.ConfigLayer{Name: l.Name, Version: l.Version})
	}
	if m.state.Refused != "" {
		m.state.Refused = ""
		m.log.Info("the API server's configuration for this node is in force again")
		m.report(nil)
	}
}

// kept is the content of the file that stores the layers in force.
type kept struct {
	Layers []keptLayer `json:"layers"`
}

type keptLayer struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Data    string `json:"data"`
}

// keep saves the layers in force for the next start. The caller holds mu.
func (m *merged) keep() {
	if m.save == nil {
		return
	}
	k := kept{Layers: []keptLayer{}}
	for _, l := range m.cluster {
		k.Layers = append(k.Layers, keptLayer{l.Name, l.Version, string(l.Data)})
	}
	data, err := json.Marshal(k)
	if err == nil {
		err = m.save(data)
	}
	if err != nil {
		m.log.Warn("the agent cannot save the API server's configuration on this node; if it starts without the API server, it uses only the file", logkey.Err, err)
	}
}

// restore merges the layers that an earlier process saved, and returns the configuration to start with. It
// returns false if no layers are saved, or if they are not valid together with the present file.
func (m *merged) restore(data []byte) (config.Config, bool) {
	if data == nil {
		return config.Config{}, false
	}
	var k kept
	err := json.Unmarshal(data, &k)
	var above []config.Layer
	for _, l := range k.Layers {
		above = append(above, config.Layer{Name: l.Name, Version: l.Version, Data: []byte(l.Data), Shared: true})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, from, merge := m.merge(above)
	if err = errors.Join(err, merge); err != nil {
		m.log.Warn("the saved copy of the API server's configuration is invalid; only the file is in force until the API server answers", logkey.Err, err)
		return config.Config{}, false
	}
	m.sources = from
	m.accept(above)
	m.state.From = api.FromCopy
	m.log.Info("until the API server answers, the configuration is the file with the last configuration of the API server", logkey.Values, len(above))
	return c, true
}

// status returns the state of the API server's layers.
func (m *merged) status() api.ClusterConfig {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Layers = append([]api.ConfigLayer(nil), s.Layers...)
	return s
}

// origins returns the source of each key in force.
func (m *merged) origins() config.Sources {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sources
}

// reportConfig stores why the API server's configuration is not in force; nil means that it is.
func (a *Agent) reportConfig(err error) {
	a.settings.noteCluster(err)
	recorder := a.cluster.events
	if err == nil || recorder == nil {
		return
	}
	for name, text := range refusedObjects(err) {
		about := events.About{Kind: "ConfigMap"}
		about.UID, about.Version = a.layers.Identity(name)
		about.Namespace, about.Name, _ = strings.Cut(name, "/")
		recorder.Warn(about, events.ConfigurationRefused, text)
	}
}

// refusedObjects returns the ConfigMaps that an error is about, by NAMESPACE/NAME, with the message about
// each.
func refusedObjects(err error) map[string]string {
	var one *configmaps.Refusal
	if errors.As(err, &one) {
		return map[string]string{one.Namespace + "/" + one.Name: one.Reason}
	}
	var many *config.Error
	if !errors.As(err, &many) {
		return nil // the layers are valid one by one, but the node cannot apply them together
	}
	out := map[string]string{}
	for _, p := range many.Problems {
		if name, ok := strings.CutPrefix(p.File, "ConfigMap "); ok {
			out[name] = strings.TrimPrefix(out[name]+"; "+p.String(), "; ")
		}
	}
	return out
}

// restoreLayers makes the agent start with the API server's configuration that an earlier process saved. It
// returns false if there is none.
func (a *Agent) restoreLayers() bool {
	c := a.opt.Config.Cluster
	if !c.Enabled || !c.Config.Enabled {
		return false
	}
	if _, err := a.files.recordKey(); err != nil {
		return false // the agent does not start with this configuration
	}
	a.merged.save = a.files.save(clusterConfigName)
	merged, ok := a.merged.restore(a.files.load(clusterConfigName))
	if ok {
		a.opt.Config = merged
	}
	return ok
}

// Config returns the configuration in force, with the source of each key.
func (s source) Config() api.Configuration {
	set := s.a.settings
	set.mu.Lock()
	c, generation, dropIn := set.config, set.generation, set.dropIn
	set.mu.Unlock()
	from := s.a.merged.origins()
	if dropIn {
		from = config.Sources{}
		from.Changed(config.Default(), c, "the runtime's drop-in")
	}
	out := api.Configuration{Generation: generation}
	for _, k := range from.Settings(c) {
		out.Keys = append(out.Keys, api.Setting(k))
	}
	return out
}
