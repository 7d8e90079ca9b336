package main

import (
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"slices"
)

// fewColours is the picture with its 256 most frequent colours: a page is text on plain grounds, and needs no more.
func fewColours(picture image.Image) image.Image {
	b := picture.Bounds()
	count := map[color.RGBA]int{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	all := make([]color.RGBA, 0, len(count))
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	palette := make(color.Palette, 0, 256)
	for _, c := range all[:min(len(all), 256)] {
		palette = append(palette, c)
	}
	few := image.NewPaletted(b, palette)
	draw.Draw(few, b, picture, b.Min, draw.Src)
	return few
}
