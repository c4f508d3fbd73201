package controlplane

import "path/filepath"

// StartControllers starts kube-controller-manager with its default controllers. The grace period of nodes is five
// minutes, because emulated nodes are slow.
func (p *Plane) StartControllers() {
	p.t.Helper()
	p.buildTools("kube-controller-manager")
	p.run(p.bin["kube-controller-manager"]+"/kube-controller-manager", "kube-controller-manager.log",
		"--kubeconfig="+p.Kubeconfig("controllers", Admin+"-token"), "--leader-elect=false", "--secure-port=0", "--v=1",
		"--service-account-private-key-file="+filepath.Join(p.Dir, "sa.key"), "--root-ca-file="+p.CA,
		"--node-monitor-grace-period=5m")
}

// StartScheduler starts kube-scheduler with its default configuration.
func (p *Plane) StartScheduler() {
	p.t.Helper()
	p.buildTools("kube-scheduler")
	p.run(p.bin["kube-scheduler"]+"/kube-scheduler", "kube-scheduler.log",
		"--kubeconfig="+p.Kubeconfig("scheduler", Admin+"-token"), "--leader-elect=false", "--secure-port=0", "--v=1")
}

// StartTopologyScheduler starts a second scheduler with the plugin NodeResourceTopologyMatch, for pods with
// schedulerName: topology. This scheduler has the Kubernetes minor version that the plugin supports.
func (p *Plane) StartTopologyScheduler() {
	p.t.Helper()
	p.buildTools("topology-scheduler")
	config := filepath.Join(p.Dir, "topology-scheduler.yaml")
	p.write("topology-scheduler.yaml", `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: `+p.Kubeconfig("topology-scheduler", Admin+"-token")+`}
profiles:
- schedulerName: topology
  plugins:
    filter: {enabled: [{name: NodeResourceTopologyMatch}]}
    score: {enabled: [{name: NodeResourceTopologyMatch}]}
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {scoringStrategy: {type: LeastAllocated}}
`)
	p.run(p.bin["topology-scheduler"]+"/scheduler", "topology-scheduler.log", "--config="+config, "--secure-port=0", "--v=2")
}
