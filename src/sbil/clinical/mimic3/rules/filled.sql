-- Every covariate on every day kept ($days of a stay at most): measured, else carried forward within the stay, else the
-- mean of the cohort. `recent` and `before` are what a decision is seen to rest on: the day itself and the day before
-- it, or with $shift = 1 the two days before it; `origin` says where `recent` comes from, seen from its own day: what
-- was measured on the day that it stands for is measured. Answered for one part of the stays after another.
WITH carried AS (
    SELECT
        icustay_id, number, covariate, mean, value,
        last_value(value IGNORE NULLS) OVER (
            PARTITION BY icustay_id, covariate ORDER BY number ROWS UNBOUNDED PRECEDING
        ) AS latest
    FROM days
    CROSS JOIN covariates
    LEFT JOIN means USING (covariate)
    LEFT JOIN daily USING (icustay_id, day, covariate)
    WHERE number <= $days AND icustay_id % $parts = $part
)
SELECT
    icustay_id, number, covariate, mean,
    CASE
        WHEN lag(value, $shift) OVER stay IS NOT NULL THEN 'measured'
        WHEN lag(latest, $shift) OVER stay IS NOT NULL THEN 'carried forward'
        ELSE 'cohort mean'
    END AS origin,
    coalesce(lag(latest, $shift) OVER stay, mean) AS recent,
    coalesce(lag(latest, $shift + 1) OVER stay, mean) AS before
FROM carried
WINDOW stay AS (PARTITION BY icustay_id, covariate ORDER BY number)
