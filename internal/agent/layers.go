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

// clusterConfigFile is the file in paths.state with the configuration layers from the API server.
const clusterConfigFile = "clusterconfig.json"

// startSourceName replaces the name of the configuration file in reports about the source of a configuration key. It is
// used if the caller of New passed a configuration that was not read from a file.
const startSourceName = "start"

// layeredConfig merges the configuration from its layers: the node's file, the layers from the API server, and the
// flags. Later layers have priority.
type layeredConfig struct {
	log      *slog.Logger
	override func(*config.Config)      // sets the values of flags in a configuration; may be nil
	apply    func(config.Config) error // applies the merged configuration after a change of the file
	// applyServerConfig applies the merged configuration after a change of the layers from the API server. If the
	// newest configuration file was refused, the error about this file stays in the status.
	applyServerConfig func(config.Config) error
	save              func([]byte) error // saves the layers from the API server; nil if they are not saved
	// report is called with the error if the API server's configuration is refused, and with nil when it is
	// in force again.
	report func(error)

	mu                 sync.Mutex              // held while the agent makes and applies a configuration
	lastReadFile       config.Layer            // the file as it was read last
	file               config.Layer            // the file in force
	serverLayers       []config.Layer          // the layers from the API server in force
	newestServerLayers []config.Layer          // the newest layers from the API server, which may be refused
	sources            config.Sources          // the layer from which each key in force comes
	warnedKeys         map[config.Problem]bool // the problems that were logged
	state              api.ClusterConfig       // the state of the API server's configuration, for the status
}

// newLayeredConfig returns the layered configuration at the start of an agent.
func newLayeredConfig(o Options) *layeredConfig {
	m := &layeredConfig{log: o.Log, override: o.Override, report: func(error) {}}
	m.file = config.Layer{Name: config.SourceDefault, Data: []byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n")}
	if c, _, err := m.merge(nil); err != nil || !reflect.DeepEqual(c, o.Config) {
		m.file = config.Layer{Name: startSourceName, Data: config.Print(o.Config)} // replaces the file
	}
	if o.ConfigFile != "" {
		data, err := config.Read(o.ConfigFile)
		if _, bad := config.Parse(o.ConfigFile, data); err == nil && bad == nil {
			m.file = config.Layer{Name: o.ConfigFile, Data: data}
		}
	}
	_, m.sources, _ = m.merge(nil) // no error: the file was parsed above, or printed from a valid configuration
	m.lastReadFile = m.file
	m.logKeyWarnings(nil)
	return m
}

// merge makes a configuration from the file, the layers above it, and the flags.
func (m *layeredConfig) merge(above []config.Layer) (config.Config, config.Sources, error) {
	c, from, err := config.Merge(append([]config.Layer{m.file}, above...)...)
	if err != nil || m.override == nil {
		return c, from, err
	}
	plain := c
	m.override(&c)
	if problems := config.Validate(c); problems != nil {
		return c, nil, fmt.Errorf("the configuration is not valid together with the flags: %w", &config.Error{Problems: problems})
	}
	from.MarkChanged(plain, c, config.SourceFlag)
	return c, from, nil
}

// parse parses the file without the other layers, and stores its text for applyFile.
func (m *layeredConfig) parse(name string, data []byte) (config.Config, error) {
	c, err := config.Parse(name, data)
	if err == nil {
		m.mu.Lock()
		m.lastReadFile = config.Layer{Name: name, Data: data}
		m.mu.Unlock()
	}
	return c, err
}

// applyFile applies the file that was read last, together with the newest layers from the API server. If these cannot
// be merged or applied, it applies the file with the layers that are in force now. If that also fails, the old file
// stays in force, and applyFile returns an error.
func (m *layeredConfig) applyFile(config.Config) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.file
	m.file = m.lastReadFile
	err := m.applyMerged(m.newestServerLayers, m.apply)
	if err == nil {
		m.accept(m.newestServerLayers)
		return nil
	}
	if !layers.SameLayers(m.newestServerLayers, m.serverLayers) && m.applyMerged(m.serverLayers, m.apply) == nil {
		return nil
	}
	m.file = before
	return err
}

// applyServerLayers applies new layers from the API server, or reports why they are refused.
func (m *layeredConfig) applyServerLayers(s layers.NodeLayers) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.state.From != api.FromServer
	m.state.From = api.FromServer
	if s.Err != nil {
		m.refuse(s.Err)
		return
	}
	m.newestServerLayers, m.state.NotUnderstood = s.Layers, s.NotUnderstood
	same := layers.SameLayers(s.Layers, m.serverLayers)
	if !same {
		if err := m.applyMerged(s.Layers, m.applyServerConfig); err != nil {
			m.refuse(err)
			return
		}
	}
	m.accept(s.Layers)
	if !same || first {
		m.saveLayers()
	}
}

// applyMerged merges the file with the layers in above and with the flags, and applies the result. The caller holds mu.
func (m *layeredConfig) applyMerged(above []config.Layer, apply func(config.Config) error) error {
	c, from, err := m.merge(above)
	if err != nil {
		return err
	}
	if err := apply(c); err != nil {
		return err
	}
	m.sources = from
	m.logKeyWarnings(above)
	return nil
}

// logKeyWarnings logs warnings about two kinds of keys in the file and in the layers in above. The first kind are keys
// that are called by a former name. The second kind are keys in placement.policyFile (the configuration of another
// agent) that have no equivalent in Trimtab. It logs each key once.
func (m *layeredConfig) logKeyWarnings(above []config.Layer) {
	for _, l := range append([]config.Layer{m.file}, above...) {
		for _, p := range config.KeyWarnings(l.Name, l.Data) {
			if m.warnedKeys[p] {
				continue
			}
			if m.warnedKeys == nil {
				m.warnedKeys = map[config.Problem]bool{}
			}
			m.warnedKeys[p] = true
			m.log.Warn("the configuration uses the old name of a key, or a policy file has a key that Trimtab does not support", logkey.Key, p.String())
		}
	}
}

// refuse stores, logs and reports the error of the newest layers. The caller holds mu.
func (m *layeredConfig) refuse(err error) {
	m.state.RefusedTotal++
	if m.state.Refused == err.Error() {
		return
	}
	m.state.Refused = err.Error()
	m.log.Error("the agent refuses the API server's configuration for this node; the last valid one stays in force", logkey.Err, err)
	m.report(err)
}

// accept stores the layers that are now in force. The caller holds mu.
func (m *layeredConfig) accept(above []config.Layer) {
	m.serverLayers, m.newestServerLayers = above, above
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

// savedLayers is the JSON form of the file clusterConfigFile.
type savedLayers struct {
	Layers []savedLayer `json:"layers"`
}

// savedLayer is a layer of the configuration from the API server. Data is its YAML.
type savedLayer struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Data    string `json:"data"`
}

// saveLayers saves the layers in force for the next start. The caller holds mu.
func (m *layeredConfig) saveLayers() {
	if m.save == nil {
		return
	}
	k := savedLayers{Layers: []savedLayer{}}
	for _, l := range m.serverLayers {
		k.Layers = append(k.Layers, savedLayer{l.Name, l.Version, string(l.Data)})
	}
	data, err := json.Marshal(k)
	if err == nil {
		err = m.save(data)
	}
	if err != nil {
		m.log.Warn("the agent cannot save the API server's configuration on this node; if the API server is unreachable at the next start, the agent uses the configuration file alone", logkey.Err, err)
	}
}

// restore merges the saved layers of an earlier process with the file, and returns the result. It returns false if
// there are no saved layers, or if the result is not valid.
func (m *layeredConfig) restore(data []byte) (config.Config, bool) {
	if data == nil {
		return config.Config{}, false
	}
	var k savedLayers
	err := json.Unmarshal(data, &k)
	var above []config.Layer
	for _, l := range k.Layers {
		above = append(above, config.Layer{Name: l.Name, Version: l.Version, Data: []byte(l.Data), Shared: true})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, from, merge := m.merge(above)
	if err = errors.Join(err, merge); err != nil {
		m.log.Warn("the saved copy of the API server's configuration is not valid; until the API server answers, the agent uses the configuration file alone", logkey.Err, err)
		return config.Config{}, false
	}
	m.sources = from
	m.accept(above)
	m.state.From = api.FromCopy
	m.log.Info("until the API server answers, the agent uses the saved copy of the API server's configuration", logkey.Values, len(above))
	return c, true
}

// status returns the state of the layers from the API server.
func (m *layeredConfig) status() api.ClusterConfig {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Layers = append([]api.ConfigLayer(nil), s.Layers...)
	return s
}

// keySources returns the layer from which each key of the configuration comes.
func (m *layeredConfig) keySources() config.Sources {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sources
}

// reportConfig stores the error of the API server's configuration, and sends events about the ConfigMaps that caused
// it. A nil error means that the configuration is in force.
func (a *Agent) reportConfig(err error) {
	a.settings.setServerErr(err)
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

// refusedObjects returns the messages in an error about ConfigMaps, by the NAMESPACE/NAME of the ConfigMap.
func refusedObjects(err error) map[string]string {
	var one *configmaps.Refusal
	if errors.As(err, &one) {
		return map[string]string{one.Namespace + "/" + one.Name: one.Reason}
	}
	var many *config.Error
	if !errors.As(err, &many) {
		return nil // each layer is valid, but the merged configuration is not
	}
	out := map[string]string{}
	for _, p := range many.Problems {
		if name, ok := strings.CutPrefix(p.File, "ConfigMap "); ok {
			out[name] = strings.TrimPrefix(out[name]+"; "+p.String(), "; ")
		}
	}
	return out
}

// restoreLayers makes the agent start with the saved copy of the API server's configuration. It returns false if
// there is no valid copy, or if the agent does not use this configuration.
func (a *Agent) restoreLayers() bool {
	c := a.opt.Config.Cluster
	if !c.Enabled || !c.Config.Enabled {
		return false
	}
	if _, err := a.files.recordKey(); err != nil {
		return false // build returns the same error
	}
	a.layeredConfig.save = a.files.save(clusterConfigFile)
	merged, ok := a.layeredConfig.restore(a.files.load(clusterConfigFile))
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
	from := s.a.layeredConfig.keySources()
	if dropIn {
		from = config.Sources{}
		from.MarkChanged(config.Default(), c, "the runtime's drop-in")
	}
	out := api.Configuration{Generation: generation}
	from.Visit(c, func(key, value, source string) {
		out.Keys = append(out.Keys, api.Setting{Key: key, Value: value, Source: source})
	})
	return out
}
