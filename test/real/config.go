package real

import (
	"fmt"
	"strings"
	"time"
)

// Option changes how a private containerd is set up.
type Option func(*settings)

type settings struct {
	release                     Release
	nriTimeout, nriRegistration time.Duration
	logLevel                    string
	nri                         bool
	extra                       []string
	wrap                        func(runc string) string
}

// WithOCIRuntime has containerd start the program that wrap returns, which is given runc's path, in place of runc.
func WithOCIRuntime(wrap func(runc string) string) Option { return func(s *settings) { s.wrap = wrap } }

// WithNRITimeout sets how long containerd waits for a plugin's answer. The default here is ten seconds instead of
// containerd's two, so that a busy machine does not reach it.
func WithNRITimeout(d time.Duration) Option { return func(s *settings) { s.nriTimeout = d } }

// WithNRIRegistrationTimeout sets how long a plugin may take to register; 20 seconds unless set.
func WithNRIRegistrationTimeout(d time.Duration) Option {
	return func(s *settings) { s.nriRegistration = d }
}

// WithoutNRI switches NRI off.
func WithoutNRI() Option { return func(s *settings) { s.nri = false } }

// Release is a line of containerd's releases.
type Release int

// The releases that are built. Their versions are in the go.mod files of test/tools.
const (
	Newest Release = iota
	V17            // speaks NRI 0.8, and has NRI off unless set
	V16            // Debian 12's package, without NRI and event stream
)

// WithRelease runs an older containerd. The test must call Privately.
func WithRelease(r Release) Option { return func(s *settings) { s.release = r } }

// Release returns the release line of the running containerd.
func (c *Containerd) Release() Release { return c.release }

// WithLogLevel sets containerd's log level; info unless set.
func WithLogLevel(level string) Option { return func(s *settings) { s.logLevel = level } }

// WithConfig appends TOML to containerd's configuration. It cannot extend a table of the harness.
func WithConfig(toml string) Option { return func(s *settings) { s.extra = append(s.extra, toml) } }

// config puts everything that instances would share below dir. restrict_oom_score_adj is set because without
// CAP_SYS_RESOURCE runc fails without a useful message. There is no metrics address, since instances would share the
// port. The timeout of task.state is longer than containerd's two seconds, in which a shim on a busy machine may not
// answer, and then StopPodSandbox fails.
func (s *settings) config(dir, sandboxImage string, t *tools) string {
	runc := t.runc
	if s.wrap != nil {
		runc = s.wrap(runc)
	}
	r := strings.NewReplacer("DIR", dir, "PAUSE", sandboxImage, "SHIM", t.shim(s.release), "RUNC", runc, "LEVEL", s.logLevel,
		"NO_NRI", fmt.Sprint(!s.nri), "NRI_REGISTRATION", s.nriRegistration.String(), "NRI_REQUEST", s.nriTimeout.String())
	template := configTemplate
	switch s.release {
	case V17:
		template = configTemplate17
	case V16:
		template = strings.TrimSuffix(configTemplate17, nriTemplate)
	}
	return r.Replace(template) + strings.Join(s.extra, "\n")
}

const configTemplate = `version = 4
root = 'DIR/root'
state = 'DIR/state'
imports = []
disabled_plugins = [
  'io.containerd.differ.v1.erofs', 'io.containerd.image-verifier.v1.bindir', 'io.containerd.internal.v1.tracing',
  'io.containerd.monitor.container.v1.restart', 'io.containerd.mount-handler.v1.erofs',
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.erofs',
  'io.containerd.tracing.processor.v1.otlp',
]
[timeouts]
  'io.containerd.timeout.task.state' = '10s'
[debug]
  level = 'LEVEL'
[plugins.'io.containerd.server.v1.grpc']
  address = 'DIR/c.sock'
[plugins.'io.containerd.server.v1.ttrpc']
  address = 'DIR/c.sock.ttrpc'
[plugins.'io.containerd.server.v1.debug']
  address = 'DIR/debug.sock'
[plugins.'io.containerd.server.v1.metrics']
  address = ''
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = 'DIR/s'
[plugins.'io.containerd.internal.v1.opt']
  path = 'DIR/opt'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'PAUSE'
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = 'DIR/certs.d'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = ['DIR/cdi']
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = 'SHIM'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = 'RUNC'
  Root = 'DIR/runc'
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['DIR/cni/bin']
  conf_dir = 'DIR/cni/conf.d'
  use_internal_loopback = true
` + nriTemplate

// nriTemplate is the same for all releases.
const nriTemplate = `[plugins.'io.containerd.nri.v1.nri']
  disable = NO_NRI
  socket_path = 'DIR/nri.sock'
  plugin_path = 'DIR/nri/plugins'
  plugin_config_path = 'DIR/nri/conf.d'
  plugin_registration_timeout = 'NRI_REGISTRATION'
  plugin_request_timeout = 'NRI_REQUEST'
`

const configTemplate17 = `version = 2
root = 'DIR/root'
state = 'DIR/state'
temp = 'DIR'
imports = []
disabled_plugins = [
  'io.containerd.internal.v1.restart', 'io.containerd.internal.v1.tracing', 'io.containerd.tracing.processor.v1.otlp',
  'io.containerd.snapshotter.v1.aufs', 'io.containerd.snapshotter.v1.blockfile',
]
[timeouts]
  'io.containerd.timeout.task.state' = '10s'
[debug]
  level = 'LEVEL'
  address = 'DIR/debug.sock'
[grpc]
  address = 'DIR/c.sock'
[ttrpc]
  address = 'DIR/c.sock.ttrpc'
[metrics]
  address = ''
[plugins.'io.containerd.internal.v1.opt']
  path = 'DIR/opt'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = 'PAUSE'
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  enable_cdi = true
  cdi_spec_dirs = ['DIR/cdi']
[plugins.'io.containerd.grpc.v1.cri'.registry]
  config_path = 'DIR/certs.d'
[plugins.'io.containerd.grpc.v1.cri'.containerd]
  snapshotter = 'overlayfs'
  default_runtime_name = 'runc'
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = 'SHIM'
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
  BinaryName = 'RUNC'
  Root = 'DIR/runc'
  SystemdCgroup = false
[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = 'DIR/cni/bin'
  conf_dir = 'DIR/cni/conf.d'
` + nriTemplate
