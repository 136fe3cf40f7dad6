// The clinical tables are plain: all the page can do is change its colours.
kit.theme();
