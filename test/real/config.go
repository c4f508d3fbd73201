package real

import (
	"fmt"
	"strings"
	"time"
)

// Option changes a setting of a private containerd.
type Option func(*settings)

// settings are what the options set.
type settings struct {
	release                     Release
	nriTimeout, nriRegistration time.Duration
	logLevel                    string
	nri                         bool     // NRI is enabled
	extra                       []string // TOML that is appended to the configuration
	// wrap returns the program that containerd starts in place of runc; nil for runc itself.
	wrap func(runc string) string
}

// WithOCIRuntime makes containerd start another program in place of runc. The function wrap gets the path of runc and
// returns the path of this program.
func WithOCIRuntime(wrap func(runc string) string) Option { return func(s *settings) { s.wrap = wrap } }

// WithNRITimeout sets how long containerd waits for a plugin's answer. The default of this package is ten seconds,
// because containerd's default of two seconds is too short on a busy machine.
func WithNRITimeout(d time.Duration) Option { return func(s *settings) { s.nriTimeout = d } }

// WithNRIRegistrationTimeout sets how long a plugin may take to register. The default of this package is 20 seconds.
func WithNRIRegistrationTimeout(d time.Duration) Option {
	return func(s *settings) { s.nriRegistration = d }
}

// WithoutNRI disables NRI.
func WithoutNRI() Option { return func(s *settings) { s.nri = false } }

// Release is a release line of containerd, such as 1.7.
type Release int

// The release lines. The versions of Newest and V17 are in the go.mod files of test/tools.
const (
	Newest Release = iota
	V17            // 1.7: it has NRI 0.8, and its default configuration disables NRI
	V16            // 1.6, the package of Debian 12: it has no NRI, and its CRI has no event stream
)

// WithRelease runs a containerd of the older release line r. Such a containerd makes sockets in a fixed directory in
// /run, so the test must run in a process of its own, by a call of Privately.
func WithRelease(r Release) Option { return func(s *settings) { s.release = r } }

// Release returns the release line of the running containerd.
func (c *Containerd) Release() Release { return c.release }

// WithLogLevel sets containerd's log level. The default is info.
func WithLogLevel(level string) Option { return func(s *settings) { s.logLevel = level } }

// WithConfig appends TOML to containerd's configuration. The TOML cannot add keys to a table that this package writes.
func WithConfig(toml string) Option { return func(s *settings) { s.extra = append(s.extra, toml) } }

// config returns containerd's configuration file. All paths in it are below dir, so that two private containerds share
// no file. It sets restrict_oom_score_adj, because the tests can run without CAP_SYS_RESOURCE. runc would then fail
// without a useful message. It sets no metrics address, because all private containerds would use the same port. The
// timeout of task.state is longer than containerd's default of two seconds. On a busy machine a shim sometimes needs
// more than two seconds to answer, and StopPodSandbox would then fail.
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

// configTemplate is the configuration of the newest release. Words in capital letters are replaced.
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

// nriTemplate is the NRI table of the configuration, which is the same for all releases with NRI.
const nriTemplate = `[plugins.'io.containerd.nri.v1.nri']
  disable = NO_NRI
  socket_path = 'DIR/nri.sock'
  plugin_path = 'DIR/nri/plugins'
  plugin_config_path = 'DIR/nri/conf.d'
  plugin_registration_timeout = 'NRI_REGISTRATION'
  plugin_request_timeout = 'NRI_REQUEST'
`

// configTemplate17 is the configuration of containerd 1.7. Without the NRI table at its end, it is the configuration of
// containerd 1.6.
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
