// Package node tests the image on a real runtime: imported with ctr, and run as the chart renders it.
package node
