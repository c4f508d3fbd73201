package chart_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trimtab/trimtab/deploy/pack/chart"
	"github.com/trimtab/trimtab/deploy/pack/test/render"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
	"github.com/trimtab/trimtab/internal/config"
)

// everything enables all features that need more from a node.
const everything = `
attach: auto
image: {repository: registry.example/trimtab, digest: "sha256:` + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" + `"}
config:
  pools: {reserved: "0"}
  placement: {policy: balloons, balloons: {cpuClasses: [{name: slow, freqGovernor: powersave}], idleCPUClass: slow}}
  hooks:
    coreSched: {enabled: true}
    partition: {enabled: true}
    rdt: {enabled: true}
    rdma: {enabled: true}
    ociHooks: {enabled: true}
    ulimits: {enabled: true}
    ioPriority: {enabled: true}
    gpu: {devices: nodes}
  resourcePlugins: {directory: /var/lib/katalyst/resource-plugins, watch: [/var/lib/katalyst/plugin-socks]}
  authority: dra
  cri: {endpoint: unix:///run/crio/crio.sock}
  http: {address: "[::1]:9464"}
maxUnavailable: 10%
seLinuxType: spc_t
imagePullSecrets: [{name: pull}]
serviceAccount: {create: false, name: nodes}
podLabels: {team: nodes}
podAnnotations: {example.com/note: one}
extraEnv: [{name: GOGC, value: "50"}]
extraVolumes: [{name: hooks, hostPath: {path: /etc/runtime/hookserver.d}}]
extraVolumeMounts: [{name: hooks, mountPath: /etc/runtime/hookserver.d, readOnly: true}]
`

func TestDefaults(t *testing.T) {
	o := render.Chart(t, "")
	ds := o.DaemonSet
	if o.Account == nil || ds.Spec.Template.Spec.ServiceAccountName != o.Account.Name {
		t.Error("the pods do not run as the chart's service account")
	}
	update := ds.Spec.UpdateStrategy.RollingUpdate
	if *update.MaxUnavailable != intstr.FromInt32(1) || *update.MaxSurge != intstr.FromInt32(0) {
		t.Errorf("update strategy %v: one node at a time, the old agent first", update)
	}
	pod := ds.Spec.Template.Spec
	if pod.PriorityClassName != "system-node-critical" || pod.HostPID || pod.HostIPC || !pod.HostNetwork {
		t.Errorf("priority %q, host PIDs %v, IPC %v, network %v", pod.PriorityClassName, pod.HostPID, pod.HostIPC, pod.HostNetwork)
	}
	if pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Error("no seccomp profile")
	}
	main := pod.Containers[0]
	if len(main.SecurityContext.Capabilities.Add) != 0 {
		t.Errorf("capabilities %v by default, want none", main.SecurityContext.Capabilities.Add)
	}
	if main.Resources.Requests.Cpu().IsZero() || main.Resources.Requests.Memory().IsZero() || main.Resources.Limits.Memory().IsZero() {
		t.Errorf("resources %v", main.Resources)
	}
	for name, probe := range map[string]*corev1.Probe{"live": main.LivenessProbe, "start": main.StartupProbe, "ready": main.ReadinessProbe} {
		if probe == nil || probe.HTTPGet.Host != "127.0.0.1" || probe.HTTPGet.Port != intstr.FromInt32(9464) {
			t.Errorf("%s probe %v", name, probe)
		}
	}
}

// TestNeeds: for every configuration, the pods have exactly the access to the node that needs.yaml lists for it.
func TestNeeds(t *testing.T) {
	needs, err := chart.ReadNeeds(tree.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	nri := []string{"always", "nri", "podSpecs", "podResources"}
	for name, c := range map[string]struct {
		values string
		wanted []string
	}{
		"default":      {"", nri},
		"bypass":       {"attach: bypass", []string{"always", "cri", "processes", "podSpecs", "podResources"}},
		"auto":         {"attach: auto", append(nri, "cri", "processes")},
		"core sched":   {"config: {hooks: {coreSched: {enabled: true}}}", append(nri, "coreSched", "processes")},
		"partition":    {"config: {hooks: {partition: {enabled: true}}}", append(nri, "partition")},
		"rdt":          {"config: {hooks: {rdt: {enabled: true}}}", append(nri, "rdt", "processes")},
		"devices":      {"config: {hooks: {gpu: {devices: nodes}}}", append(nri, "devices")},
		"device nodes": {"config: {hooks: {deviceNodes: {enabled: true}}}", append(nri, "devices")},
		"rules":        {"config: {rules: [{name: fuse, match: 'true', set: [{field: device, key: /dev/fuse}]}]}", append(nri, "devices")},
		"ulimits":      {"config: {hooks: {ulimits: {enabled: true}}}", append(nri, "limits", "processes")},
		"scheduler":    {"config: {hooks: {scheduler: {enabled: true}}}", append(nri, "scheduling", "processes")},
		"classes":      {"config: {placement: {policy: balloons, balloons: {schedulingClasses: [{name: low, policy: batch}]}}}", append(nri, "scheduling", "processes")},
		"CPU classes":  {"config: {placement: {policy: balloons, balloons: {cpuClasses: [{name: slow, freqGovernor: powersave}], idleCPUClass: slow}}}", append(nri, "cpuClasses")},
		"ruled limits": {"config: {rules: [{name: files, match: 'true', set: [{field: rlimit, key: RLIMIT_NOFILE, value: '1:1'}, {field: io.priority, value: IOPRIO_CLASS_BE 4}]}]}", append(nri, "limits", "scheduling", "processes")},
		"other rules":  {"config: {rules: [{name: one, match: 'true', class: shared}]}", nri},
		"OCI hooks":    {"config: {hooks: {ociHooks: {enabled: true}}}", append(nri, "ociHooks")},
		"plugins":      {"config: {resourcePlugins: {directory: /run/plugins}}", append(nri, "resourcePlugins", "devices")},
		"sockets":      {"config: {resourcePlugins: {watch: [/run/plugins]}}", append(nri, "pluginSockets", "devices")},
		"CDI classes":  {"config: {hooks: {cdiDevices: {enabled: true, classes: [v.com/gpu]}}}", append(nri, "cdi")},
		"claims":       {"config: {authority: dra}", append(nri, "cdi", "dra")},
		"no kubelet":   {`config: {podspec: {kubelet: {podsSocket: "", podResourcesSocket: ""}}}`, nri[:2]},
		"empty":        {"config: {hooks: {coreSched: null, gpu: null}, podspec: {kubelet: null}, resourcePlugins: null, nri: null, http: null}", nri},
		"unit":         {"attach: none", []string{"unit"}},
		"everything":   {everything, slices.DeleteFunc(slices.Collect(maps.Keys(needs.When)), func(name string) bool { return name == "unit" })},
	} {
		t.Run(name, func(t *testing.T) {
			o := render.Chart(t, c.values)
			checkNeeds(t, o, needs, c.wanted)
			if o.Config != "" || name != "unit" {
				checkConfig(t, o.Config)
			}
		})
	}
}

// TestHookDirectories: each directory of OCI hooks that the configuration names is mounted where the agent reads it.
func TestHookDirectories(t *testing.T) {
	o := render.Chart(t, "config: {hooks: {ociHooks: {enabled: true, directories: [/etc/one, /opt/two]}}}")
	pod, got := o.DaemonSet.Spec.Template.Spec, map[string]string{}
	for _, v := range pod.Volumes {
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.Name == v.Name && strings.HasPrefix(v.Name, "hooks-d") && m.ReadOnly {
				got[v.HostPath.Path] = m.MountPath
			}
		}
	}
	if want := map[string]string{"/etc/one": "/etc/one", "/opt/two": "/opt/two"}; !maps.Equal(got, want) {
		t.Errorf("mounts %v, want %v", got, want)
	}
}

// TestShown: each test that needs.yaml names for a need exists, and reads the needs that it checks.
func TestShown(t *testing.T) {
	needs, err := chart.ReadNeeds(tree.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range needs.All() {
		dir, name, _ := strings.Cut(n.Test, " ")
		files, err := filepath.Glob(filepath.Join(tree.Root(t), dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") && strings.Contains(string(text), strconv.Quote(n.Test))
		})
		if !found {
			t.Errorf("%s: no test %q shows it", n.Name, n.Test)
		}
	}
}

func checkNeeds(t *testing.T, o render.Objects, needs chart.Needs, wanted []string) {
	t.Helper()
	pod := o.DaemonSet.Spec.Template.Spec
	security := pod.Containers[0].SecurityContext
	if *security.Privileged || *security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem {
		t.Errorf("security context %v", security)
	}
	if !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("dropped: %v", security.Capabilities.Drop)
	}
	var capabilities []corev1.Capability
	for _, need := range needs.Capabilities {
		if slices.Contains(wanted, need.For) {
			capabilities = append(capabilities, corev1.Capability(need.Name))
		}
	}
	if !slices.Equal(security.Capabilities.Add, capabilities) {
		t.Errorf("capabilities %v, want %v", security.Capabilities.Add, capabilities)
	}
	if pod.HostPID != slices.Contains(wanted, "processes") {
		t.Errorf("host PIDs: %v", pod.HostPID)
	}
	mounts := map[string]corev1.VolumeMount{}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounts[m.Name] = m
	}
	var names, want []string
	for _, v := range pod.Volumes {
		if v.HostPath != nil && v.Name != "hooks" {
			names = append(names, v.Name)
		}
	}
	for _, p := range needs.Paths {
		if !slices.Contains(wanted, p.For) {
			continue
		}
		want = append(want, p.VolumeNames()...)
		for _, name := range p.VolumeNames() {
			if mounts[name].ReadOnly == p.Write {
				t.Errorf("%s is mounted read only: %v", name, mounts[name].ReadOnly)
			}
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("host paths %v, want %v", names, want)
	}
}

// agent is the released program.
var agent = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("make", "-s", "programs", "ARCHES="+runtime.GOARCH)
	cmd.Dir = "../../.."
	cmd.Stderr = os.Stderr
	return filepath.Join(cmd.Dir, ".cache/dist/linux-"+runtime.GOARCH+"/trimtab"), cmd.Run()
})

// checkConfig runs `trimtab config check` on the rendered configuration.
func checkConfig(t *testing.T, text string) {
	t.Helper()
	program, err := agent()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "config", "check", file).CombinedOutput(); err != nil {
		t.Errorf("trimtab config check: %v\n%s\n%s", err, out, text)
	}
}

// TestValues: values are rendered to the right fields.
func TestValues(t *testing.T) {
	o := render.Chart(t, everything)
	pod := o.DaemonSet.Spec.Template
	main := pod.Spec.Containers[0]
	if !strings.HasPrefix(main.Image, "registry.example/trimtab@sha256:0123") {
		t.Errorf("image %s", main.Image)
	}
	if o.Account != nil || pod.Spec.ServiceAccountName != "nodes" {
		t.Errorf("service account %v, %q", o.Account, pod.Spec.ServiceAccountName)
	}
	if pod.Labels["team"] != "nodes" || pod.Annotations["example.com/note"] != "one" || main.Env[len(main.Env)-1].Value != "50" {
		t.Errorf("labels %v, annotations %v, environment %v", pod.Labels, pod.Annotations, main.Env)
	}
	if main.LivenessProbe.HTTPGet.Host != "::1" || pod.Spec.SecurityContext.SELinuxOptions.Type != "spc_t" {
		t.Errorf("probe %v, SELinux %v", main.LivenessProbe.HTTPGet, pod.Spec.SecurityContext.SELinuxOptions)
	}
	for _, line := range []string{"attach: auto", "resctrl: /host/resctrl", "cpu: /host/cpu", "dev: /host/dev", "endpoint: unix:///run/crio/crio.sock"} {
		if !strings.Contains(o.Config, line+"\n") {
			t.Errorf("no %q in the configuration:\n%s", line, o.Config)
		}
	}
	cri := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cri" })
	if cri < 0 || pod.Spec.Volumes[cri].HostPath.Path != "/run/crio" {
		t.Errorf("volumes %v", pod.Spec.Volumes)
	}
}

// TestPodsForUnits: pods of attach: none, in which kubectl trimtab reaches agents that are systemd units,
// have no agent, no configuration and no token. The chart makes the rights for the units' tokens.
func TestPodsForUnits(t *testing.T) {
	o := render.Chart(t, "{attach: none, config: {paths: {key: /srv/trimtab/key}}}")
	pod := o.DaemonSet.Spec.Template.Spec
	main := pod.Containers[0]
	if o.Config != "" || *pod.AutomountServiceAccountToken || pod.HostNetwork || pod.HostPID || main.LivenessProbe != nil {
		t.Errorf("configuration %q, token %v, host network %v, PIDs %v, probe %v", o.Config, *pod.AutomountServiceAccountToken, pod.HostNetwork, pod.HostPID, main.LivenessProbe)
	}
	if want := []string{"idle", "--config", "/srv/trimtab/config.yaml"}; !slices.Equal(main.Args, want) {
		t.Errorf("arguments %q, want %q", main.Args, want)
	}
	if main.Name != "trimtab" || o.DaemonSet.Spec.Template.Labels["app.kubernetes.io/name"] != "trimtab" {
		t.Error("kubectl trimtab does not find the pods")
	}
	if len(o.Roles) != 1 || o.Account == nil {
		t.Errorf("roles %v, account %v", o.Roles, o.Account)
	}
}

// TestRestarts: a changed configuration restarts the pods only if the agent reads the key at its start.
func TestRestarts(t *testing.T) {
	of := func(values string) string {
		return render.Chart(t, values).DaemonSet.Spec.Template.Annotations["trimtab.io/start-config"]
	}
	plain := of("")
	if live := of(`config: {pools: {reserved: "0"}}`); live != plain {
		t.Error("a key that is read live restarts the pods")
	}
	if live := of("config: {log: {level: debug}, nri: {updateIntervalMilliseconds: 60}}"); live != plain {
		t.Error("keys of a section with others that only a start reads restart the pods")
	}
	for _, values := range []string{`config: {nri: {index: "50"}}`, "config: {cgroup: {version: v2}}", "attach: auto"} {
		if of(values) == plain {
			t.Errorf("%s does not restart the pods", values)
		}
	}
}

// TestStartKeys: the chart has the keys that the agent reads only at its start.
func TestStartKeys(t *testing.T) {
	needs, err := chart.ReadNeeds(tree.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	var walk func(reflect.Type, string)
	walk = func(section reflect.Type, above string) {
		for f := range section.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch path := above + key; {
			case path == "attach": // a value of the chart
			case f.Tag.Get("restart") == "yes":
				want = append(want, path)
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, path+".")
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
	slices.Sort(want)
	slices.Sort(needs.StartKeys)
	if !slices.Equal(needs.StartKeys, want) {
		t.Errorf("startKeys %v, want %v", needs.StartKeys, want)
	}
}

// TestInvalidValues: Helm refuses invalid values before it installs anything.
func TestInvalidValues(t *testing.T) {
	dir := filepath.Join(tree.Root(t), chart.Dir)
	for set, want := range map[string]string{
		"attach=hooks":                         "attach",
		"attach=cri":                           "install the Debian package",
		"config.pools.reservd=0":               "reservd",
		"config.attach=nri":                    "attach",
		"config.placement.policy=tetris":       "policy",
		"imagee.tag=x":                         "imagee",
		"maxUnavailable=0":                     "maxUnavailable",
		"monitoring.podMonitor.enabled=true":   "Prometheus cannot reach",
		"monitoring.podMonitor.interval=often": "interval",
		"attach=none,monitoring.podMonitor.enabled=true,config.http.address=:9464": "the pods have no agent",
		"serviceAccount.create=false": "serviceAccount.name",
	} {
		_, err := render.Helm(t, "template", "trimtab", dir, "--set", set)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v, want an error with %q", set, err, want)
		}
	}
}

// TestMonitoring: by default the chart has no objects of the Prometheus operator; if switched on, they find the pods.
func TestMonitoring(t *testing.T) {
	plain := render.Chart(t, "")
	if plain.Service != nil || len(plain.Monitors) != 0 || len(plain.DaemonSet.Spec.Template.Spec.Containers[0].Ports) != 0 {
		t.Errorf("by default: %v %v", plain.Service, plain.Monitors)
	}
	o := render.Chart(t, `
config: {http: {address: ":9464", page: true}}
monitoring:
  podMonitor: {enabled: true, labels: {release: prometheus}}
  serviceMonitor: {enabled: true, interval: 1m}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
`)
	ports := o.DaemonSet.Spec.Template.Spec.Containers[0].Ports
	if len(ports) != 1 || ports[0].Name != "metrics" || ports[0].ContainerPort != 9464 {
		t.Errorf("ports %v", ports)
	}
	if probe := o.DaemonSet.Spec.Template.Spec.Containers[0].LivenessProbe.HTTPGet; probe.Host != "127.0.0.1" {
		t.Errorf("probe at %s", probe.Host)
	}
	if !strings.Contains(o.Config, "page: true") {
		t.Errorf("no page in %s", o.Config)
	}
	labels := o.DaemonSet.Spec.Template.Labels
	if o.Service == nil || o.Service.Spec.ClusterIP != "None" || o.Service.Spec.Ports[0].TargetPort.StrVal != "metrics" {
		t.Fatalf("service %v", o.Service)
	}
	for key, value := range o.Service.Spec.Selector {
		if labels[key] != value {
			t.Errorf("the service selects %s=%s, the pods have %q", key, value, labels[key])
		}
	}
	for kind, list := range map[string]string{"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints", "PrometheusRule": "groups"} {
		spec, _ := o.Monitors[kind]["spec"].(map[string]any)
		if items, _ := spec[list].([]any); len(items) != 1 {
			t.Errorf("%s: %v", kind, spec)
		}
	}
	checkConfig(t, o.Config)
}
