package agent

import (
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/condition"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/kube/layers"
	"github.com/trimtab/trimtab/internal/kube/podreport"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// cluster has the parts of the agent that use the API server. The zero value has none.
type cluster struct {
	client   *kube.Client // nil without cluster.enabled, or if clientErr is set
	services []kube.Service
	// events sends events about objects of the API server; nil without a client.
	events    *events.Recorder
	clientErr error // why the client could not be made; nil if there is no error
}

// maxStartDelay is the maximum random delay after the start before the agent lists objects at the API server.
const maxStartDelay = 20 * time.Second

// connectCluster makes the client of the API server if cluster.enabled is set. Without a usable kubeconfig
// or service account the agent works without the API server.
func connectCluster(c config.Cluster, o kube.Options) cluster {
	if !c.Enabled {
		return cluster{}
	}
	o.Kubeconfig, o.Node, o.Namespace = c.Kubeconfig, c.NodeName, c.Namespace
	client, err := kube.Connect(o)
	if err != nil {
		o.Log.Error("the agent cannot connect to the API server; the agent works without the API server", logkey.Err, err)
	}
	return cluster{client: client, clientErr: err}
}

// clusterServices lists the services that use the API server; nil without a client.
func (a *Agent) clusterServices(client *kube.Client) []kube.Service {
	if client == nil {
		return nil
	}
	c := a.opt.Config.Cluster
	services := append(a.nodeReports(client), a.namespaceLabels(client))
	if a.cluster.events = events.NewRecorder(client); c.Events {
		services = append(services, a.cluster.events, podreport.NewProblemEvents(a.conductor, a.cluster.events))
	}
	services = append(services, podreport.NewEvictions(a.conductor, client, a.cluster.events, func() int { return a.settings.current().TopologyManager.EvictAfter }))
	if c.Config.Enabled {
		a.layers = layers.New(client, c.Config.AlsoRead, a.layeredConfig.applyServerLayers)
		services = append(services, configService{a.layers, a.layeredConfig})
	}
	if c.NodeCondition {
		services = append(services, condition.New(client, a.nodeCondition, condition.DefaultTiming()))
	}
	if c.PodAnnotation {
		services = append(services, podreport.NewPlacements(a.conductor, client, a.isReleased))
	}
	return services
}

// isReleased reports whether a release has begun. A release restores everything that the agent changed.
func (a *Agent) isReleased() bool {
	released, _ := a.settings.releaseState()
	return released
}

// nodeCondition returns the state that the agent writes as a condition of the Node object. After a release, when the
// agent has restored everything that it changed, nodeCondition returns the zero State.
func (a *Agent) nodeCondition() condition.State {
	released, refused := a.settings.releaseState()
	if released {
		return condition.State{}
	}
	if err := a.Ready(); err != nil {
		return condition.State{Status: "False", Reason: condition.NotReady, Message: err.Error()}
	}
	if refused != "" {
		message := "a newer configuration is refused, and the last valid one stays in force: " + refused
		return condition.State{Status: "True", Reason: condition.ConfigurationRefused, Message: message}
	}
	return condition.State{Status: "True", Reason: condition.Ready, Message: "a runtime is attached, and the agent knows its containers"}
}

// status returns the state of the services that use the API server; nil without cluster.enabled.
func (c cluster) status() *api.Cluster {
	switch {
	case c.clientErr != nil:
		return &api.Cluster{Error: c.clientErr.Error()}
	case c.client == nil:
		return nil
	}
	s := c.client.Status(c.services...)
	s.Events = c.events.Counts()
	return &s
}

// clusterStatus returns the state of the services that use the API server and of the configuration from the API
// server; nil without cluster.enabled.
func (a *Agent) clusterStatus() *api.Cluster {
	s := a.cluster.status()
	if s != nil && a.layers != nil {
		c := a.layeredConfig.status()
		c.Waiting = a.layers.Waiting()
		s.Config = &c
	}
	return s
}

// configService is the service that applies the configuration from the API server.
type configService struct {
	*layers.Watch

	layeredConfig *layeredConfig
}

// Row returns the state of the configuration from the API server, for `trimtab status`.
func (c configService) Row() api.ClusterPart {
	s, waiting := c.layeredConfig.status(), c.Waiting()
	row := api.ClusterPart{Name: "configuration", State: "only the configuration file"}
	var names []string
	for _, l := range s.Layers {
		names = append(names, l.Name)
	}
	if len(names) > 0 {
		row.State = strings.Join(names, ", ") + " above the file"
	}
	if s.From == api.FromCopy {
		row.State += " (from the copy on this node)"
	}
	if len(s.NotUnderstood) > 0 {
		row.State += "; without effect (objects or settings of other agents): " + strings.Join(s.NotUnderstood, ", ")
	}
	switch {
	case s.Refused != "":
		row.Error = "newer configurations are refused: " + s.Refused
	case waiting != "":
		row.Error = "the API server's configuration is not known: " + waiting
	}
	return row
}
