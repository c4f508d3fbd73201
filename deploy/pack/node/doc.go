// Package node tests what is delivered on a real runtime: the image, imported by ctr, run as the chart says.
package node
