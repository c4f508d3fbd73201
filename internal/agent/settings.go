package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/topology"
)

// settings are the configuration in force, and the machine that it applies to.
type settings struct {
	log       *slog.Logger
	level     *slog.LevelVar // receives log.level; nil if not needed
	format    func(string)   // is called with log.format; nil for none
	override  func(*config.Config)
	node      node
	conductor *conductor.Conductor
	observe   bool // the agent changes nothing, until it ends

	// applying is held while a policy is made and applied, so that the last policy that was made is in
	// force.
	applying sync.Mutex

	mu         sync.Mutex // guards all below
	machine    *topology.Machine
	config     config.Config
	generation uint64
	badConfig  string // why a newer file is not in force
	badCluster string // why what the API server has is not in force
	dropIn     bool   // the runtime sent the configuration
	// releasedAt is when a release began; nothing is decided after it. Zero before one.
	releasedAt time.Time
}

// current returns the configuration in force.
func (s *settings) current() config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// hardware returns the machine as it is now.
func (s *settings) hardware() *topology.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine
}

// policy makes the policy of a configuration on a machine. After a release it makes a policy that decides
// nothing. The caller holds applying.
func (s *settings) policy(c config.Config, m *topology.Machine) (engine.Policy, error) {
	p, err := policyOf(c, m, s.node)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.releasedAt.IsZero() {
		p.Hooks, p.Place, p.Strict, p.Fatal = nil, false, false, nil
	}
	return p, err
}

// refusedReason returns why a newer configuration is not in force; "" if none was refused. The caller holds
// mu.
func (s *settings) refusedReason() string {
	return strings.Trim(s.badConfig+"\n"+s.badCluster, "\n")
}

// noteCluster stores why the API server's configuration is not in force; nil means that it is.
func (s *settings) noteCluster(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.badCluster = ""; err != nil {
		s.badCluster = err.Error()
	}
}

// problem stores why a newer configuration is not in force; nil means that it is.
func (s *settings) problem(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.badConfig = ""
		return
	}
	s.badConfig = err.Error()
	s.log.Error("the new configuration is refused; the old one stays in force", logkey.Err, err)
}

// fromFile applies a changed configuration file. A configuration that the runtime sent has priority: then
// the file is not applied.
func (s *settings) fromFile(c config.Config) error {
	s.mu.Lock()
	dropIn := s.dropIn
	s.mu.Unlock()
	if dropIn {
		return errors.New("the runtime's drop-in is in force; this file is not used")
	}
	return s.apply(c)
}

// fromCluster is fromFile for a change of the layers above the file.
func (s *settings) fromCluster(c config.Config) error {
	s.mu.Lock()
	file := s.badConfig
	s.mu.Unlock()
	err := s.fromFile(c)
	s.mu.Lock()
	s.badConfig = file
	s.mu.Unlock()
	return err
}

// fromRuntime applies the configuration that a runtime sends to a plugin it
// launched.
func (s *settings) fromRuntime(yaml string) error {
	c, err := config.Parse("the runtime's drop-in", []byte(yaml))
	if err != nil {
		s.problem(err)
		return err
	}
	if s.override != nil {
		s.override(&c)
	}
	s.mu.Lock()
	s.dropIn = true
	inForce := s.config
	s.mu.Unlock()
	ignored := keepStartKeys(&c, inForce)
	if err := s.apply(c); err != nil {
		return err
	}
	if len(ignored) > 0 {
		s.notePartial(fmt.Errorf("the runtime's drop-in: %s has no effect there, because the agent needs it before the runtime sends the drop-in; "+
			"set it in the configuration file; all other keys are in force", strings.Join(ignored, ", ")))
	}
	return nil
}

// notePartial stores which parts of the configuration in force have no effect.
func (s *settings) notePartial(err error) {
	s.mu.Lock()
	s.badConfig = err.Error()
	s.mu.Unlock()
	s.log.Error("a part of the configuration has no effect", logkey.Err, err)
}

// apply applies a new configuration to running and new pods. It returns the keys whose change needs a
// restart of the agent; these keys keep their old values.
func (s *settings) apply(c config.Config) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.observe {
		observed, off := onlyObserving(c)
		observed.Mode = c.Mode
		c = observed
		logOff(s.log, off)
	}
	policy, err := s.policy(c, s.hardware())
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.config
	s.config, s.badConfig = c, ""
	s.generation++
	gen := s.generation
	s.mu.Unlock()
	if s.level != nil {
		_ = s.level.UnmarshalText([]byte(c.Log.Level)) // validated
	}
	if s.format != nil {
		s.format(c.Log.Format)
	}
	for _, key := range config.NeedRestart(old, c) {
		s.log.Warn("a changed setting takes effect after a restart of the agent", logkey.Key, key)
	}
	s.conductor.Configure(policy, tuning(c))
	s.log.Info("configuration in force", logkey.Generation, gen)
	return nil
}

// keepStartKeys keeps the present values of the keys that need a restart, in a configuration from the
// runtime. It returns the keys that this configuration sets to a value other than the default.
func keepStartKeys(c *config.Config, inForce config.Config) []string {
	def := config.Default()
	mine, theirs, plain := startKeysOf(inForce.NRI), startKeysOf(c.NRI), startKeysOf(def.NRI)
	var keys []string
	for _, k := range []struct {
		key  string
		said bool
	}{
		{"cgroup", c.Cgroup != inForce.Cgroup && c.Cgroup != def.Cgroup},
		{"paths", c.Paths != inForce.Paths && c.Paths != def.Paths},
		{"http", c.HTTP != inForce.HTTP && c.HTTP != def.HTTP},
		{"nri (except cede and updateIntervalMilliseconds)", !reflect.DeepEqual(theirs, mine) && !reflect.DeepEqual(theirs, plain)},
		{"failurePolicy.agent (the agent applies it; the runtime uses the value that it got at the connection)",
			c.FailurePolicy.Agent != inForce.FailurePolicy.Agent && c.FailurePolicy.Agent != def.FailurePolicy.Agent},
	} {
		if k.said {
			keys = append(keys, k.key)
		}
	}
	c.Cgroup, c.Paths, c.HTTP = inForce.Cgroup, inForce.Paths, inForce.HTTP
	c.NRI.Enabled, c.NRI.Socket, c.NRI.Name, c.NRI.Index = mine.Enabled, mine.Socket, mine.Name, mine.Index
	return keys
}

// startKeysOf returns the keys of nri whose change needs a restart.
func startKeysOf(n config.NRI) config.NRI {
	return config.NRI{Enabled: n.Enabled, Socket: n.Socket, Name: n.Name, Index: n.Index}
}

// applyMachine applies the policy to a changed machine. The caller holds applying.
func (s *settings) applyMachine(now *topology.Machine) {
	c := s.current()
	policy, err := s.policy(c, now)
	if err != nil {
		s.log.Error("the configuration is not valid for the CPUs that are online now; earlier decisions stay", logkey.Err, err)
		return
	}
	s.mu.Lock()
	s.machine = now
	s.mu.Unlock()
	s.conductor.ConfigureMachine(now, policy, tuning(c))
}

// releaseState reports whether a release has restored all values, and why a newer configuration is not in
// force; "" if none was refused.
func (s *settings) releaseState() (released bool, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.releasedAt.IsZero(), s.refusedReason()
}

// released returns when a release began; zero before one.
func (s *settings) released() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releasedAt
}

// release restores everything that the agent changed. After it the agent decides nothing.
func (s *settings) release(ctx context.Context) (api.Released, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	c := s.config
	again := !s.releasedAt.IsZero()
	if !again { // a second release only tries again
		s.releasedAt = time.Now()
	}
	s.mu.Unlock()
	policy, err := s.policy(c, s.hardware())
	if err != nil {
		return api.Released{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, copiesTimeout)
	defer cancel()
	r := s.conductor.Release(ctx, policy)
	r.Again = again
	return r, nil
}
