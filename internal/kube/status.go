package kube

import "github.com/trimtab/trimtab/internal/report/api"

// Part is a service with a row in `trimtab status` and on the metrics page.
type Part interface {
	Service
	// Row says how it stands. It returns at once.
	Row() api.ClusterPart
}

// Status is what services do through the API server: a row of each that is a Part.
func (c *Client) Status(services ...Service) api.Cluster {
	reached, failed := c.State()
	out := api.Cluster{Server: c.Server, Node: c.Node, Reached: reached}
	if failed != nil {
		out.Error = failed.Error()
	}
	for _, s := range services {
		if p, ok := s.(Part); ok {
			out.Parts = append(out.Parts, p.Row())
		}
	}
	return out
}
