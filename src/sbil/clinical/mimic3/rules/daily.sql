-- One number a stay, calendar day and covariate: the mean of what was measured; a row recorded twice counts once.
-- Answered for one part of the stays after another, so that memory holds one part.
SELECT icustay_id, charttime::DATE AS day, covariate, round(avg(value), 4) AS value, count(*) AS used
FROM (
    SELECT DISTINCT icustay_id, covariate, itemid, charttime, value
    FROM measurements
    WHERE value IS NOT NULL AND icustay_id % $parts = $part
)
GROUP BY ALL
